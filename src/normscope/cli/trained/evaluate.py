"""`normscope evaluate` scores a run on a split of its corpus."""

from pathlib import Path
from typing import Annotated

import typer

from ...errors import UserError
from ...settings.files import refuse_no_run
from ..console import say
from ..shared import Average, Device, Which, averaged_if_asked, refuse_unwritable


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    split: Annotated[str, typer.Option(help="Split of the run's corpus, such as valid or test.")] = "valid",
    text: Annotated[
        Path | None,
        typer.Option(help="Score a language model on this file of text instead; plain, .gz or .xz."),
    ] = None,
    layout: Annotated[
        str, typer.Option(help="Of --text: paragraphs (a blank line between documents) or wikitext.")
    ] = "paragraphs",
    language: Annotated[str, typer.Option(help="Of --text: whose sentences are told apart in a paragraph.")] = "en",
    beam: Annotated[
        int | None,
        typer.Option(help="Number of hypotheses that the search keeps; 1 is greedy search.", show_default="5"),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="Exponent in score = sum of log-probabilities / length ** length_penalty, the end token counted.",
            show_default="1.0",
        ),
    ] = None,
    which: Which = "best",
    average: Average = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the scores as JSON into this file.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the translations into this file, one on each line.")
    ] = None,
) -> None:
    """Score a run on a split of its corpus.

    A translation run gets sacreBLEU with its signature and tokenised BLEU4; a masked-lm or language-model run gets its
    losses and perplexities, and the latter also on any file of text.

    For example:

    \b
      normscope evaluate runs/first --split test --save scores.json
    """
    import dataclasses
    import json

    for option, file in (("--save", save), ("--output", output)):
        if file is not None:
            refuse_unwritable(option, file)
    refuse_no_run(run)
    from ...files import disk_errors, write_atomically
    from ...provenance import provenance
    from ...runs.trained import SCORES, evaluate_run, evaluate_text

    given = {"beam": beam, "length_penalty": length_penalty}
    search = {name: value for name, value in given.items() if value is not None}
    if text is not None and (search or output is not None):
        raise UserError("--text is for language models, which have no beam and write no translations; leave those out")
    with averaged_if_asked(run, which, average) as (place, one, mean):
        if text is not None:
            done = evaluate_text(place, text, layout=layout, language=language, which=one, device=device)
        else:
            done = evaluate_run(
                place, split, which=one, device=device, search=search, translations=output is not None, say=say
            )
    if mean is not None:
        settings = {**done.settings, "run": str(run), "update": mean.updates[-1], "average": mean.words}
        done = dataclasses.replace(done, settings=settings)
    values = {**done.settings, **done.scores, **provenance()}
    with disk_errors("writing the scores and translations"):
        if output is not None:
            write_atomically(output, "".join(line + "\n" for line in done.translations))
        if save is not None:
            write_atomically(save, SCORES.text(values))
    for line in [json.dumps(values)] if as_json else done.lines():
        typer.echo(line)
