"""The verbs `export`, `import` and `convert-placement`: models to and from other libraries, to another placement."""

from pathlib import Path
from typing import Annotated

import typer

from ...settings.files import refuse_no_run
from ..names import placement_names
from ..shared import Average, averaged_if_asked

Which = Annotated[
    str,
    typer.Option("--checkpoint", help="Checkpoint: best (lowest validation loss), last, or the number of an update."),
]

Set = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change one setting of the new run, such as optimizer.peak_lr=1e-4."
    ),
]


def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Argument(help="Folder to make.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="bert, roberta-prelayernorm, gpt2, llama, olmo2, qwen3, gemma2, marian, m2m100 or ctranslate2; "
            "without it, the first that fits.",
        ),
    ] = None,
    which: Which = "best",
    average: Average = None,
) -> None:
    """Write a run's model and tokeniser as Hugging Face transformers or CTranslate2 open them.

    For example:

    \b
      normscope export runs/first exported --format marian
    """
    refuse_no_run(run)
    from ...exchange.verbs import export_run

    with averaged_if_asked(run, which, average) as (place, one, _):
        report = export_run(place, out, form=form, which=one)
    left_out = f"; without {', '.join(report.left_out)}" if report.left_out else ""
    typer.echo(
        f"{out}: {report.form.name}, opened by {report.form.opened_by}; its outputs differ from ours by at most "
        f"{report.difference:.2g}{left_out}"
    )


def import_(
    folder: Annotated[Path, typer.Argument(help="Folder with config.json, model.safetensors and tokenizer.json.")],
    run: Annotated[Path, typer.Argument(help="Run folder to make.")],
    settings: Set = [],  # noqa: B006
) -> None:
    """Make a run of a BERT, Llama, OLMo 2, Qwen 3 or Gemma 2 checkpoint of Hugging Face transformers.

    For example:

    \b
      normscope import bert-base-uncased runs/bert
    """
    from ...exchange.verbs import import_run

    imported = import_run(folder, run, settings=settings)
    typer.echo(f"{run}: task {imported.task}, update 0")
    if imported.drawn:
        typer.echo(f"note: drawn at random, because the checkpoint lacks these weights: {', '.join(imported.drawn)}")
    if imported.unused:
        typer.echo(f"note: weights of the checkpoint that this model has no place for: {', '.join(imported.unused)}")


def convert_placement(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Argument(help="Run folder to make.")],
    placement: Annotated[str, typer.Option(help="A registered name, such as pre-ln; `placements` lists them.")],
    which: Which = "best",
    settings: Set = [],  # noqa: B006
) -> None:
    """Put the weights of a run under another placement, and say what that does to the function that they compute.

    For example:

    \b
      normscope convert-placement runs/first runs/peri --placement peri-ln
    """
    refuse_no_run(run)
    placement_names([placement])
    from ...exchange.verbs import re_place_run

    done = re_place_run(run, out, placement, which=which, settings=settings)
    for line in done.lines():
        typer.echo(line)
    typer.echo(f"{out}: update 0; train on with: normscope train {out / 'config.toml'} --run {out}")
