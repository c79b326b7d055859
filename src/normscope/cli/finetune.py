"""`normscope finetune` trains a pre-trained encoder on labelled sentence pairs and searches for the best setting."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import stderr, tell
from .display import GridDisplay
from .options import described_by
from .shared import COMPARE, CheckpointOption, EngineName, Imports, Trust, listed, open_trained, resumable

if TYPE_CHECKING:
    from ..finetune.cells import SearchSpace
    from ..finetune.finetune import PairTask

_PretrainedRun = Annotated[Path, typer.Argument(help="Run folder of a masked-lm run.")]
_TaskOption = Annotated[
    str,
    typer.Option(metavar="mrpc|rte|FILE.tsv", help="Data set to learn; the first line of a file names its columns."),
]
_Data = Annotated[Path | None, typer.Option(help="Folder with train.tsv and dev.tsv, for mrpc and rte.")]
_Dev = Annotated[
    Path | None,
    typer.Option(help="File of validation pairs, for a file of one's own; without it every tenth pair is held out."),
]
_LabelColumn = Annotated[str, typer.Option(help="Name of the column of labels.")]
_FirstColumn = Annotated[str, typer.Option(help="Name of the column of first sentences.")]
_SecondColumn = Annotated[str, typer.Option(help="Name of the column of second sentences.")]
_Positive = Annotated[
    str,
    typer.Option(
        help="Label whose F1 is measured.  [default: 1, entailment, or the last of two labels in sorting order]"
    ),
]
_BatchSizes = Annotated[str, typer.Option(help="Numbers of pairs in a batch, separated by commas.")]
_Rates = Annotated[str, typer.Option(help="Peak learning rates, separated by commas.")]
_Epochs = Annotated[str, typer.Option(help="Numbers of epochs, separated by commas.")]
_Seeds = Annotated[
    int, typer.Option(help="Runs of the best setting, each with a seed of its own; the search uses the first seed.")
]
_WarmupShare = Annotated[float, typer.Option(help="Warm-up as a share of the updates of a run.")]
_SequenceLength = Annotated[
    int | None,
    typer.Option(
        help="Longest pair in tokens.  [default: 128, or the number of the model's positions where that is less]"
    ),
]
_Out = Annotated[Path | None, typer.Option(help="Folder of the search.  [default: RUN-finetune-TASK]")]
_RunSettings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of every run, such as model.dropout=0.2."),
]


@described_by(COMPARE)
@resumable()
def finetune(
    run: _PretrainedRun,
    task: _TaskOption,
    *,
    data: _Data = None,
    dev: _Dev = None,
    label_column: _LabelColumn = "label",
    first_column: _FirstColumn = "sentence1",
    second_column: _SecondColumn = "sentence2",
    positive: _Positive = "",
    batch_sizes: _BatchSizes = "16,32",
    rates: _Rates = "1e-5,2e-5,3e-5,5e-5,1e-4",
    epochs: _Epochs = "3,4,8",
    seeds: _Seeds = 6,
    warmup_share: _WarmupShare = 0.1,
    sequence_length: _SequenceLength = None,
    which: CheckpointOption = "best",
    out: _Out = None,
    settings: _RunSettings = [],  # noqa: B006
    processes: int,
    engine: EngineName,
    imports: Imports = [],  # noqa: B006
    trust: Trust = False,
) -> None:
    """Fine-tune a pre-trained encoder on labelled sentence pairs.

    One seed searches for the best setting; all seeds then train it, and their scores get 95 % intervals. After an
    interruption, run the same command to resume: finished runs are skipped and unfinished ones resumed.

    For example:

    \b
      normscope finetune runs/bert --task mrpc --data corpora/mrpc
    """
    open_trained(run, imports, trust)
    from ..engines.choosing import chosen
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
    _search(run, pairs, folder, space, engine=chosen(engine), **options)


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
