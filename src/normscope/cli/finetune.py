"""`normscope finetune` trains a pre-trained encoder on labelled sentence pairs and searches for the best setting."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import stderr, tell
from .display import GridDisplay
from .options import described_by
from .shared import COMPARE, Imports, Trust, listed, open_trained, resumable

if TYPE_CHECKING:
    from ..finetune.cells import SearchSpace
    from ..finetune.finetune import PairTask


@described_by(COMPARE, "cli/trained.py:translate")
@resumable()
def finetune(
    run: Annotated[Path, typer.Argument()],
    task: Annotated[str, typer.Option(metavar="mrpc|rte|FILE.tsv")],
    *,
    data: Path | None = None,
    dev: Path | None = None,
    label_column: str = "label",
    first_column: str = "sentence1",
    second_column: str = "sentence2",
    positive: str = "",
    batch_sizes: str = "16,32",
    rates: str = "1e-5,2e-5,3e-5,5e-5,1e-4",
    epochs: str = "3,4,8",
    seeds: int = 6,
    warmup_share: float = 0.1,
    sequence_length: int | None = None,
    which: Annotated[str, typer.Option("--checkpoint")] = "best",
    out: Path | None = None,
    settings: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE")] = [],  # noqa: B006
    processes: int,
    imports: Imports = [],  # noqa: B006
    trust: Trust = False,
) -> None:
    """Fine-tune a pre-trained encoder on labelled sentence pairs.

    One seed searches for the best setting; all seeds then train it, and their scores get 95 % intervals. After an
    interruption, run the same command to resume: finished runs are skipped and unfinished ones resumed.

    For example:

    \b
      normscope finetune runs/bert --task mrpc --data corpora/mrpc

    run: Run folder of a masked-lm run. task: Data set to learn; the first line of a file names its columns. data:
    Folder with train.tsv and dev.tsv, for mrpc and rte. dev: File of validation pairs, for a file of one's own; without
    it every tenth pair is held out. label_column: Name of the column of labels. first_column: Name of the column of
    first sentences. second_column: Name of the column of second sentences. positive: Label whose F1 is measured. By
    default 1, entailment, or the last of two labels in sorting order. batch_sizes: Numbers of pairs in a batch,
    separated by commas. rates: Peak learning rates, separated by commas. epochs: Numbers of epochs, separated by
    commas. seeds: Runs of the best setting, each with a seed of its own; the search uses the first seed. warmup_share:
    Warm-up as a share of the updates of a run. sequence_length: Longest pair in tokens. By default 128, or the number
    of the model's positions where that is less. out: Folder of the search. By default RUN-finetune-TASK. settings:
    Change one setting of every run, such as model.dropout=0.2.
    """
    open_trained(run, imports, trust)
    from ..finetune.cells import SearchSpace
    from ..finetune.finetune import pair_task

    columns = label_column, first_column, second_column
    pairs = pair_task(task, data=data, dev=dev, columns=columns, positive_label=positive)
    space = SearchSpace(
        batch_sizes=tuple(listed(batch_sizes, int, "batch-sizes")),
        rates=tuple(listed(rates, float, "rates")),
        epochs=tuple(listed(epochs, int, "epochs")),
        seeds=seeds,
        warmup_share=warmup_share,
    )
    folder = out or run.resolve().with_name(f"{run.resolve().name}-finetune-{pairs.name}")
    options = {"which": which, "sequence_length": sequence_length, "settings": settings, "processes": processes}
    _search(run, pairs, folder, space, **options)


def _search(run: Path, pairs: "PairTask", folder: Path, space: "SearchSpace", **options: Any) -> None:
    """Show the search while it runs, and print what came of it."""
    from ..finetune.finetune import RunsFailed
    from ..finetune.finetune import finetune as run_search

    try:
        with GridDisplay(stderr()) as display:
            found = run_search(run, pairs, folder, space=space, watch=display, **options)
    except RunsFailed as failed:
        for line in str(failed).splitlines():
            stderr().print(f"failed: {line}", soft_wrap=True)
        stderr().print("run the same command to try them again", soft_wrap=True)
        raise typer.Exit(1) from None
    tell(*found.lines(), f"results: {folder / 'results.json'}")
