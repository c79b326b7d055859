"""The verb `finetune`: a pre-trained encoder on labelled sentence pairs, the best setting searched for."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import GridDisplay, stderr
from .shared import listed


def finetune(
    run: Annotated[Path, typer.Argument(help="Run folder of a masked-lm run.")],
    task: Annotated[
        str, typer.Option(metavar="mrpc|rte|FILE.tsv", help="What to learn; a file names its columns in line 1.")
    ],
    data: Annotated[Path | None, typer.Option(help="mrpc, rte: folder with train.tsv and dev.tsv.")] = None,
    dev: Annotated[
        Path | None, typer.Option(help="FILE.tsv: pairs to validate on; every tenth is held out without.")
    ] = None,
    label_column: Annotated[str, typer.Option(help="Name of the column of labels.")] = "label",
    first_column: Annotated[str, typer.Option(help="Name of the column of first sentences.")] = "sentence1",
    second_column: Annotated[str, typer.Option(help="Name of the column of second sentences.")] = "sentence2",
    positive: Annotated[
        str, typer.Option(help="Label that F1 is of; without it 1, entailment, or the last of two in sorting order.")
    ] = "",
    batch_sizes: Annotated[str, typer.Option(help="Pairs of a batch, comma-separated.")] = "16,32",
    rates: Annotated[str, typer.Option(help="Peak learning rates, comma-separated.")] = "1e-5,2e-5,3e-5,5e-5,1e-4",
    epochs: Annotated[str, typer.Option(help="Comma-separated.")] = "3,4,8",
    seeds: Annotated[int, typer.Option(help="Of the best setting; the search itself takes the first.")] = 6,
    warmup_share: Annotated[float, typer.Option(help="Of a run's updates.")] = 0.1,
    sequence_length: Annotated[
        int | None, typer.Option(help="Longest pair in tokens; 128, or the model's positions where fewer.")
    ] = None,
    which: Annotated[
        str, typer.Option("--checkpoint", help="best (lowest validation loss), last, or an update's number.")
    ] = "best",
    out: Annotated[Path | None, typer.Option(help="Folder of the search; RUN-finetune-TASK without it.")] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of every run, such as model.dropout=0.2."),
    ] = [],  # noqa: B006
    processes: Annotated[int, typer.Option(help="Runs at a time; 0 for as many as there are cores.")] = 0,
) -> None:
    """Fine-tune a pre-trained encoder: search with one seed, the best setting with all, 95 % intervals.

    Finished runs are skipped and unfinished ones resumed, so the same command goes on after an interruption.
    """
    from ..data.labelled.pairs import Columns
    from ..studies.finetuning.cells import SearchSpace
    from ..studies.finetuning.finetune import FineTuning, RunsFailed
    from ..studies.finetuning.finetune import finetune as run_search
    from ..studies.finetuning.task import pair_task
    from ..train import Interrupted

    columns = Columns(label=label_column, first=first_column, second=second_column)
    pairs = pair_task(task, data=data, dev=dev, columns=columns, positive_label=positive)
    space = SearchSpace(
        batch_sizes=tuple(listed(batch_sizes, int, "batch-sizes")),
        rates=tuple(listed(rates, float, "rates")),
        epochs=tuple(listed(epochs, int, "epochs")),
        seeds=seeds,
        warmup_share=warmup_share,
    )
    folder = out or run.resolve().with_name(f"{run.resolve().name}-finetune-{pairs.name}")
    options: dict[str, Any] = {"which": which, "sequence_length": sequence_length, "settings": settings}
    search: Callable[..., FineTuning] = run_search
    try:
        with GridDisplay(stderr) as display:
            found = search(run, pairs, folder, space=space, processes=processes, watch=display, **options)
    except Interrupted as stop:
        stderr.print(f"{stop}; the same command goes on from there", soft_wrap=True)
        raise typer.Exit(stop.exit_code) from None
    except RunsFailed as failed:
        for line in str(failed).splitlines():
            stderr.print(f"failed: {line}", soft_wrap=True)
        stderr.print("the same command tries them again", soft_wrap=True)
        raise typer.Exit(1) from None
    for line in [*found.lines(), f"results: {folder / 'results.json'}"]:
        typer.echo(line)
