"""Search the peak rate of every arm by trials.

Ask for trials, train them as runs of a grid, tell their losses, and again, until the budget is spent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..adapters.optuna import Search
from ..errors import UserError, option
from ..files import disk_errors, make_folders
from ..limits.ours import nothing_of_ours, refuse_foreign
from ..report.words import counted, duration, learning_rate
from ..signals import Interrupted
from ..tasks.protocol import AnyCorpus
from ..tasks.run_config import RunConfig
from ..train import StopRule
from .costs import trial_seconds, updates_of
from .grid import Arm, Cell, Grid, alone, cells_of, registered_name, write_configs
from .manifest import Manifest, about, former_manifest, named_cells, refuse_unlike, write_manifest
from .pool import PoolOptions, at_once, train_all
from .search import SEED_OFFSET, OpenArm, Tuning, rounded
from .state import CellState

JOURNALS = "journals"
"""The folder of what each arm's search has asked for and was told."""
TITLE = "Trials of peak rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTask:
    """What is to be tuned, and with what."""

    base: RunConfig
    arms: Sequence[OpenArm]
    tuning: Tuning
    corpus: AnyCorpus
    threads: int | Literal["auto"] = 1
    """Of every run whose configuration leaves them open."""


@dataclass(slots=True, kw_only=True)
class TuningResult:
    """What became of a search."""

    manifest: Manifest
    trials: dict[OpenArm, list[Cell]]
    """Asked for, in their order."""
    losses: dict[str, float] = field(default_factory=dict)
    """By the name of a trial that is over, its last validation loss in nats per token; infinite where not finite."""
    problems: list[str] = field(default_factory=list)
    """A line for each trial that failed."""
    stopped: Interrupted | None = None

    @property
    def whole(self) -> bool:
        """Whether every arm has had all its trials."""
        return not self.problems and self.stopped is None

    def best(self, arm: OpenArm) -> Arm:
        """The configuration of the trial with the lowest loss; of several that of the lowest rate."""
        return min(self.trials[arm], key=lambda cell: (self.losses[cell.name], cell.arm.peak_lr)).arm


def arms_of(grid: Grid) -> list[OpenArm]:
    """Every placement, warm-up and optimiser of a grid. Raises UserError for a placement that is not registered."""
    return [
        OpenArm(registered_name(placement), (warmup_updates,), optimizer)
        for placement, warmup_updates in grid.placements_and_warmups
        for optimizer in grid.optimizers
    ]


def tune(
    asked: TuningTask, folder: Path, options: PoolOptions, *, title: str | None = None, notes: Sequence[str] = ()
) -> TuningResult:
    """Give every arm its trials, in rounds that all arms go through together.

    What a trial is depends on the seed, its number and the losses of earlier rounds alone: neither the number of
    processes nor a kill changes it. Raises UserError where the folder holds a search with other settings.
    """
    updates = updates_of(asked.base, asked.corpus)
    _refuse_never_peaking(asked.arms, updates)
    for line in notes:
        options.say(line)
    with alone(folder, "search"), disk_errors(f"writing into {folder}"):
        found = TuningResult(
            manifest=_manifest(asked, folder, options.stop_when), trials={arm: [] for arm in asked.arms}
        )
        searches = {arm: _search(asked, arm, folder) for arm in asked.arms}
        for numbers in asked.tuning.rounds():
            for arm, search in searches.items():
                found.trials[arm] += _trials(asked, arm, [search.ask(n) for n in numbers], found.trials[arm], folder)
            cells = [trials[number] for number in range(numbers.stop) for trials in found.trials.values()]
            refuse_unlike(
                cells, named_cells(folder, found.manifest.cells), found.manifest, asked.corpus.fingerprint, folder
            )
            found.manifest = found.manifest.grown(title, options.command, cells)
            write_configs(cells)
            write_manifest(folder, found.manifest)
            if not numbers.start:
                options.say(_announced(asked, cells[0], updates, at_once(options.processes, cells[0].config)))
            states, found.stopped = train_all(cells, updates, options)
            _take(found, states, folder)
            if not found.whole:
                break
            for arm, search in searches.items():
                for number in numbers:
                    search.tell(number, found.losses[found.trials[arm][number].name])
    return found


def _manifest(asked: TuningTask, folder: Path, stop_when: StopRule | None) -> Manifest:
    """That of the search, with what its trials depend on. Raises UserError where they depended on something else."""
    found = former_manifest(folder, lambda config: asked.corpus) or about(asked.base, asked.corpus)
    record = asked.tuning.record(asked.base, asked.arms, stop_when)
    if found.search is None and not found.cells:
        refuse_foreign(folder / JOURNALS, nothing_of_ours)
        found = replace(found, title=TITLE, search=record)
        # Before there are runs, of which it would not be known what they depended on.
        write_manifest(folder, found)
    if found.search is None:
        raise UserError(
            f"{folder} holds runs that are no trials of a search; choose another folder with {option('out')}"
        )
    there = found.search
    if unlike := [
        f"{key}: {there.get(key)} there, {value} now" for key, value in record.items() if value != there.get(key)
    ]:
        raise UserError(
            f"{folder} holds a search with other settings ({'; '.join(unlike)}), which its trials depend on; choose "
            f"another folder with {option('out')}"
        )
    return found


def _search(asked: TuningTask, arm: OpenArm, folder: Path) -> Search:
    make_folders(folder / JOURNALS)
    return Search(
        folder / JOURNALS / f"{arm.name}.jsonl",
        asked.tuning.axes(arm),
        starts=asked.tuning.starts(arm),
        seed=asked.base.seed,
    )


def _trials(
    asked: TuningTask, arm: OpenArm, points: Sequence[dict[str, float]], former: Sequence[Cell], folder: Path
) -> list[Cell]:
    """A run for each point, unlike any of the former ones."""
    arms = [cell.arm for cell in former]
    for point in points:
        warmup = int(point.get("warmup_updates", arm.warmups_updates[0]))
        rate = rounded(point["peak_lr"], [other.peak_lr for other in arms if other.warmup_updates == warmup])
        arms.append(arm.at(rate, warmup))
    seeds = [asked.base.seed + SEED_OFFSET]
    return cells_of(arms[len(former) :], asked.base, folder, seeds=seeds, threads=asked.threads)


def _take(found: TuningResult, states: Sequence[CellState[Cell]], folder: Path) -> None:
    """What has become of the trials so far."""
    for state in states:
        if state.status == "failed":
            found.problems.append(f"{state.cell.name}: {state.message} (log: {state.cell.log_file})")
        elif state.over:
            diverged = state.status == "non-finite" or state.nll_nats is None
            found.losses[state.cell.name] = math.inf if diverged else float(state.nll_nats or 0.0)
    failed = {state.cell.name: state.message for state in states if state.status == "failed"}
    found.manifest = replace(found.manifest, failed={**found.manifest.failed, **failed})
    write_manifest(folder, found.manifest)


def _refuse_never_peaking(arms: Sequence[OpenArm], updates: int) -> None:
    longest = max(warmup for arm in arms for warmup in arm.warmups_updates)
    if longest > updates:
        raise UserError(
            f"with a warm-up of {longest} updates a training of {updates} never reaches its peak rate, and there is "
            "nothing to tune; give a shorter warm-up or a longer train.duration"
        )


def _announced(asked: TuningTask, cell: Cell, updates: int, at_once: int) -> str:
    """A line that says how many trials there are, over which rates, and about how long all of them take."""
    tuning, trials = asked.tuning, len(asked.arms) * asked.tuning.trials
    said = (
        f"tuning {counted(len(asked.arms), 'arm')} by {tuning.trials} trials each of {counted(updates, 'update')}, "
        f"peak rates from {learning_rate(tuning.low)} to {learning_rate(tuning.high)}"
    )
    if cell.config.train.device != "cpu":
        return said
    # After its first trials an arm has so many at a time.
    side_by_side = min(at_once, len(asked.arms) * tuning.together)
    an_update = trial_seconds(cell.config, asked.corpus) * cell.config.train.accumulation
    total = duration(an_update * updates * trials / side_by_side)
    return f"{said}; about {total} of training where none is finished, by the time of one trial batch"
