"""`normscope generate` writes text with the model of a language-model run."""

from pathlib import Path
from typing import Annotated

import typer

from ...settings.files import refuse_no_run
from ..shared import Average, Device, Which, as_asked, averaged_if_asked


def generate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    prompt: Annotated[str, typer.Option(help="The text to go on with; without it a new document begins.")] = "",
    tokens: Annotated[int, typer.Option(help="Number of new tokens, at most.")] = 200,
    samples: Annotated[int, typer.Option(help="Number of texts.")] = 1,
    temperature: Annotated[
        float, typer.Option(help="Logits are divided by it; 0 takes the likeliest token every time.")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(help="Draw from so many of the likeliest tokens.", show_default="all")
    ] = None,
    top_p: Annotated[
        float, typer.Option(help="Draw from the likeliest tokens that together have this probability.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of what is drawn: equal seeds give equal texts.")] = 1,
    which: Which = "best",
    average: Average = None,
    device: Device = "auto",
) -> None:
    """Write text with the model of a language-model run.

    For example:

    \b
      normscope generate runs/first --prompt "The history of" --tokens 50
    """
    refuse_no_run(run)
    from ...data.documents.tokeniser import SEP
    from ...decode.sample import SamplingConfig, sample
    from ...runs.trained import load_run_of
    from ...tasks.language_model import LANGUAGE_MODEL

    with averaged_if_asked(run, which, average) as (place, one, _):
        loaded = load_run_of(LANGUAGE_MODEL, place, which=one, device=device)
    end = loaded.codec.ids[SEP]
    # Every document of the training stands behind an end of the one before.
    ids = [end, *loaded.codec.encode_many([prompt])[0]]
    config = as_asked(
        SamplingConfig,
        tokens=tokens,
        samples=samples,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    texts = as_asked(sample, loaded.model, ids, config, end=end)
    for number, text in enumerate(texts):
        if number:
            typer.echo("---")
        typer.echo(loaded.codec.decode([*ids, *text]).strip())
