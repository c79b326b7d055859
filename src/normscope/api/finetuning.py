"""Fine-tuning from Python, as the command line does it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.choosing import engine_settings
from ..finetune import search as searching
from ..finetune.cells import search_space
from ..finetune.opened import FineTuningConfig
from ..finetune.page import accuracy_panels
from ..finetune.summary import TunedSetting
from ..report.chart import Panel
from ..report.notebook import fragment, paragraph, picture, table
from ..report.words import broken, significant
from ..settings.validation import checked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FineTuning:
    """The outcome of a fine-tuning search."""

    folder: Path
    report: Path
    """The page, an HTML file that needs nothing else; `results.json` beside it has all numbers."""
    summary: TunedSetting
    """The best setting over its seeds: accuracies, intervals, and the majority class."""
    table: Sequence[dict[str, Any]]
    """A row for each cell: its setting, its seed, and what it came to."""
    lines: Sequence[str]
    panels: Sequence[Panel]
    """The panels that `plot` draws."""

    def plot(self) -> "Figure":
        """Returns the accuracies beside the majority class, as a matplotlib figure."""
        from ..report.chart_svg import panels_figure

        return panels_figure(self.panels)

    def __str__(self) -> str:
        """Returns the lines that the terminal shows at the end."""
        return broken("\n".join(self.lines))

    def __repr__(self) -> str:
        return f"FineTuning(accuracy {self.summary.accuracy.words}; {self.report})"

    def _repr_html_(self) -> str:
        from ..report.chart_svg import panels_svg

        heads = list(self.table[0])
        rows = []
        for row in self.table:
            rows.append([_written(row[name]) for name in heads])
        drawn = picture(panels_svg(self.panels, title="Accuracy beside the majority class"))
        return fragment([*map(paragraph, self.lines), drawn, table(heads, rows)])


@checked
def finetune(
    run: str | Path,
    train: str | Path,
    dev: str | Path,
    *,
    columns: Sequence[str] | None = None,
    search: str = "small",
    batch_sizes: Sequence[int] | None = None,
    rates: Sequence[float] | None = None,
    epochs: Sequence[int] | None = None,
    seeds: int = 6,
    warmup_share: float = 0.1,
    sequence_length: int | None = None,
    dropout: float = 0.1,
    which: str = "best",
    device: str = "auto",
    processes: int = 1,
    engine: str = "local",
    engine_set: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    trust: bool = False,
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> FineTuning:
    """Fine-tune an encoder on labelled sentences or pairs of them, and search for the best setting.

    What is trained on:
        run: folder of a masked-lm run, or folder that `normscope export` wrote.
        train: file of labelled rows to train on: .tsv, .csv or .parquet.
        dev: file of labelled rows that judge.
        columns: names of the columns of the label and of one sentence or two. By default those of
            MRPC, RTE or SST-2, whichever the files have.
        trust: run the Python files that the run names.

    What is searched:
        search: which settings the first seed tries: paper (Xiong et al. 2020, appendix A.3: 60),
            small (3) or none (1).
        batch_sizes: rows of a batch to try, in place of the search's.
        rates: peak learning rates to try, in place of the search's.
        epochs: numbers of epochs to try, in place of the search's.
        seeds: trainings of the best setting; the first of these seeds searches.

    How each training goes:
        which: checkpoint of a run: best (lowest validation loss), last, or the number of an update.
        warmup_share: share of a training's updates in which the rate rises.
        sequence_length: tokens of the longest sequence; longer ones are cut. By default 128, or as
            many as the encoder can read.
        dropout: share that is dropped, in the encoder and before the last layer.
        device: where a training runs: auto, cpu or cuda.

    How the trainings are run:
        processes: trainings at a time; 0 for as many as there is room for.
        engine: where the trainings run: local, ray or slurm.
        engine_set: settings of the engine, such as gpus_per_run.
        watch: called with a stage, how many of its updates are done, and how many there are.

    What is written:
        out: folder of the search. By default RUN-finetune-FOLDER-TRAIN, after the file to train on
            and its folder.

    Finished trainings in `out` are not made again. Raises UserError before anything is trained, and
    for trainings that failed when the others are kept; `normscope.train.Interrupted` after Ctrl-C.
    """
    config = _config(run, train, dev, columns, which, device, trust)
    config = replace(
        config, sequence_length=sequence_length, dropout=dropout, warmup_share=warmup_share
    )
    space = search_space(search, batch_sizes=batch_sizes, rates=rates, epochs=epochs)
    place = engine_settings(engine, engine_set)
    options = searching.SearchOptions(space=space, seeds=seeds, processes=processes, engine=place)
    return _searched(config, out, replace(options, watch=watch))


def _config(
    run: str | Path,
    train: str | Path,
    dev: str | Path,
    columns: Sequence[str] | None,
    which: str,
    device: str,
    trust: bool,
) -> FineTuningConfig:
    return FineTuningConfig(
        start=Path(run),
        which=which,
        train=Path(train),
        dev=Path(dev),
        columns=None if columns is None else tuple(columns),
        device=device,
        trust=trust,
    )


def default_folder(run: Path, train: Path) -> Path:
    """Returns the folder of a search for which no folder was given.

    GLUE's files have the same name in every task, so that their folder is in it too.
    """
    run, train = run.resolve(), train.absolute()
    return run.with_name(f"{run.name}-finetune-{train.parent.name}-{train.name.partition('.')[0]}")


def _searched(
    config: FineTuningConfig, out: str | Path | None, options: searching.SearchOptions
) -> FineTuning:
    """Trains what the folder lacks of a search, and says what it came to."""
    folder = default_folder(config.start, config.train) if out is None else Path(out)
    options = replace(options, command=f"normscope.finetune(…, out={str(folder)!r})")
    return _finetuning_of(searching.search(config, folder, options))


def _finetuning_of(found: searching.FoundSetting) -> FineTuning:
    """Returns a search in the form that Python shows."""
    cells = {cell.name: cell for cell in (*found.searched, *found.best)}
    rows = []
    for cell in cells.values():
        scores = cell.scores()
        rows.append(
            {
                **asdict(cell.setting),
                "seed": cell.seed,
                "updates": cell.updates,
                "accuracy": None if scores is None else scores.accuracy,
                "nll_nats": None if scores is None else scores.nll_nats,
            }
        )
    return FineTuning(
        folder=found.folder,
        report=found.report,
        summary=found.tuned,
        table=rows,
        lines=found.lines(),
        panels=accuracy_panels(found.searched, found.best, found.tuned),
    )


def _written(value: float | None) -> str:
    return significant(value) if isinstance(value, float) else str(value)
