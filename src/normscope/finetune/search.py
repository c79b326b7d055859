"""A fine-tuning search in a folder: every setting with one seed, the best with all, and the report.

The same command goes on with what is there, cell by cell.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ..engines.alone import alone
from ..engines.choosing import LOCAL, EngineSettings
from ..errors import UserError, option
from ..files import disk_errors
from ..report.words import counted, learning_rate, percentage
from ..train.device import choose_device
from ..train.together.group import Group
from ..train.together.joining import joined
from ..train.together.life_signs import SILENT_SECONDS
from .cells import SearchSpace, TuningCell
from .opened import FineTuningConfig, OpenedSearch, open_search
from .page import refuse_other_page, write_page
from .pool import train_cells
from .summary import TunedSetting, best_setting, tuned_setting

Watch = Callable[[str, int, int], None]
"""A function that is called with a stage, how many of its updates are done, and how many there
are.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """The options of how any search is run."""

    space: SearchSpace
    seeds: int = 6
    """The number of seeds of the best setting, the first of which searches."""
    processes: int = 0
    """Cells at a time; 0 for as many as the engine has room for."""
    engine: EngineSettings = LOCAL
    """The engine that trains them."""
    command: str = ""
    """The command that was given, for the report."""
    watch: Watch = lambda stage, done, total: None
    say: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        """Checks the options. Raises UserError for what cannot be meant."""
        if self.seeds < 1:
            raise UserError(f"{option('seeds')} must be at least 1, got {self.seeds}")
        if self.processes < 0:
            raise UserError(f"{option('processes')} must be 0 or more, got {self.processes}")
        if self.engine.processes_per_run > 1:
            raise UserError(
                f"processes_per_run = {self.engine.processes_per_run}: a fine-tuning is trained by "
                "one process; leave it out, and several are trained side by side"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class FoundSetting:
    """The outcome of a search."""

    opened: OpenedSearch
    searched: Sequence[TuningCell]
    """The cells of every setting with the first seed."""
    best: Sequence[TuningCell]
    """The best setting with every seed, the first among them."""
    tuned: TunedSetting
    folder: Path
    report: Path

    def lines(self) -> list[str]:
        """Returns the lines that the terminal shows: the settings that were tried, and the outcome
        of the best.
        """
        return [*setting_lines(self.searched), *summary_lines(self)]


def search(config: FineTuningConfig, folder: Path, options: SearchOptions) -> FoundSetting:
    """Trains what `folder` lacks of a search, and writes its report.

    Processes that torchrun has started train one cell after the other together; the first of them
    alone writes and speaks. Raises UserError before anything is trained where the encoder, the
    files or the folder do not fit, and where no cell stays finite; PeerLost where one of the
    processes has gone.
    """
    with joined(choose_device(config.device).type, SILENT_SECONDS) as group:
        if group.size > 1:
            group.together(lambda: _refuse_others(options, group))
        if not group.first:
            options = replace(options, watch=_unseen, say=_unheard)
        opened = group.together(lambda: open_search(config))
        with ExitStack() as held:
            group.of_first(lambda: _begin(opened, folder, options, held))
            return _found(opened, folder, options, group)


def _unseen(stage: str, done: int, total: int) -> None:
    """Ignores the progress, in a process that another one watches."""


def _unheard(line: str) -> None:
    """Ignores a line, in a process for which another one speaks."""


def _refuse_others(options: SearchOptions, group: Group) -> None:
    """Refuses, in one of several processes, options by which still others would train. Raises
    UserError.
    """
    if options.engine.elsewhere or options.processes > 1:
        raise UserError(
            f"torchrun or a launcher like it has started {group.size} processes, which train one "
            f"setting after the other together: leave out {option('processes')} and "
            f"{option('engine')}, or the launcher"
        )


def _begin(opened: OpenedSearch, folder: Path, options: SearchOptions, held: ExitStack) -> None:
    """Takes the folder, and says what there is to train on."""
    held.enter_context(alone(folder, "search"))
    refuse_other_page(folder)
    for line in notes(opened):
        options.say(line)


def _found(
    opened: OpenedSearch, folder: Path, options: SearchOptions, group: Group
) -> FoundSetting:
    """Trains what the folder lacks, and judges. The first process alone reads what is there."""
    searched = opened.cells(options.space.settings(), [1], folder)
    chosen = next(options.space.settings())
    if len(searched) > 1:
        _train(opened, searched, options, f"search of {len(searched)} settings", group)
        chosen = group.of_first(lambda: best_setting(searched))
    best = opened.cells([chosen], range(1, options.seeds + 1), folder)
    _train(opened, best, options, counted(options.seeds, "seed"), group)
    tuned = group.of_first(lambda: tuned_setting(best, opened.data))

    def write() -> None:
        with disk_errors(f"writing into {folder}"):
            write_page(opened, searched, best, tuned, folder, command=options.command)

    group.of_first(write)
    return FoundSetting(
        opened=opened,
        searched=searched,
        best=best,
        tuned=tuned,
        folder=folder,
        report=folder / "report.html",
    )


def _train(
    opened: OpenedSearch,
    cells: Sequence[TuningCell],
    options: SearchOptions,
    stage: str,
    group: Group,
) -> None:
    """Trains those that are not finished."""
    finished = group.of_first(lambda: [cell.scores() is not None for cell in cells])
    left = [cell for cell, is_finished in zip(cells, finished, strict=True) if not is_finished]
    total = sum(cell.updates for cell in cells)
    before = total - sum(cell.updates for cell in left)
    words = f"updates of the {stage}"
    train_cells(
        opened,
        left,
        options.engine,
        options.processes,
        lambda updates: options.watch(words, before + updates, total),
        group,
    )
    options.watch(words, total, total)


def notes(opened: OpenedSearch) -> list[str]:
    """Returns what a user should know of the data before hours of training."""
    data = opened.data
    rows = len(data.train) + len(data.dev)
    share = float((data.dev.labels_P == data.majority).mean())
    lines = [
        f"{opened.start.words}; {len(data.train):,} rows to train on, {len(data.dev):,} to judge; "
        f"labels {', '.join(data.labels)}; the majority class, {data.labels[data.majority]}, has "
        f"{percentage(share)} of those to judge"
    ]
    if data.cut:
        lines.append(
            f"note: {data.cut:,} of {rows:,} rows are longer than {opened.sequence_length} tokens "
            "and lose some"
        )
    return lines


def setting_lines(cells: Sequence[TuningCell]) -> list[str]:
    """Returns a table of the settings that were tried, as text."""
    rows = [f"{'batch':>5}  {'rate':>7}  {'epochs':>6}  {'accuracy':>8}  {'loss, nats':>10}"]
    for cell in cells:
        setting, scores = cell.setting, cell.scores()
        rate = learning_rate(setting.peak_lr)
        head = f"{setting.batch_sequences:>5}  {rate:>7}  {setting.epochs:>6}"
        if scores is None or scores.accuracy is None or scores.nll_nats is None:
            rows.append(f"{head}  not finite")
        else:
            rows.append(f"{head}  {scores.accuracy:>8.4f}  {scores.nll_nats:>10.4f}")
    return rows


def summary_lines(found: FoundSetting) -> list[str]:
    """Returns the outcome of the best setting, in sentences."""
    tuned = found.tuned
    seeds = counted(tuned.accuracy.seeds, "seed")
    lines = [
        f"accuracy {tuned.accuracy.words} ({tuned.setting.words}; mean of {seeds}, 95 % interval)"
    ]
    if tuned.non_finite_seeds:
        numbers = ", ".join(map(str, tuned.non_finite_seeds))
        lines.append(f"not finite, and left out: seed {numbers}")
    if len(found.searched) > 1:
        others = tuned.accuracy_of_other_seeds
        alone = "" if others is None else f"; the other seeds alone: {others.words}"
        lines.append(f"the setting was chosen on the same dev rows, by the first seed{alone}")
    verdict = {True: "yes", False: "no", None: "undecided"}[tuned.beats_majority]
    lines.append(
        f"majority class {tuned.majority:.4f}; above it: {verdict} (by "
        f"{tuned.above_majority.words}, over dev rows)"
    )
    return [*lines, f"report: {found.report}"]
