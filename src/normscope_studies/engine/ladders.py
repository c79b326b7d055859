"""Ladders of rates: every arm at every rate with few seeds, then at its best rates with more, without warm-up and with.

An arm is a run's configuration and a placement; `climb` trains what the folder lacks of all of them.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.manifest import sources
from normscope.compare.pool import run_cells
from normscope.compare.state import CellState
from normscope.errors import UserError
from normscope.evidence.estimates import estimate
from normscope.evidence.judging import Answer, holm, learned
from normscope.measure import Estimate, Sensitivity, lr_sensitivity
from normscope.tasks.run_config import RunConfig
from normscope.train.device import available_cores

from .models import LadderConfig
from .pieces import Pieces

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LadderRun:
    """Where a training went."""

    cell: Cell
    final_nats: float
    """Validation loss per target token at the end; of a run that did not stay finite, that of its first batch."""
    first_nats: float
    """Of the first batch, before the first update."""
    finite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The runs of one arm with one warm-up, over the rates."""

    warmup_updates: int
    peak_lrs: Sequence[float]
    """Rising."""
    runs: Sequence[Sequence[_LadderRun]]
    """A row for each seed that climbed the ladder, a column for each rate."""
    again: Mapping[float, Sequence[_LadderRun]]
    """By rate, one run a seed: of the rates with the lowest losses on the ladder."""

    @property
    def best_lr(self) -> float:
        """The rate with the lowest mean over the seeds that were trained again; the smaller of two that are equal."""
        return min(sorted(self.again), key=lambda lr: mean_nats(self.again[lr]))

    @property
    def at_best(self) -> Sequence[_LadderRun]:
        """The runs at the best rate, one a seed."""
        return self.again[self.best_lr]

    @property
    def at_an_end(self) -> bool:
        """Whether the best rate is the ladder's first or last, so that a better one may lie beyond."""
        return self.best_lr in (self.peak_lrs[0], self.peak_lrs[-1])

    @property
    def rate(self) -> str:
        """The best rate in words, with * where it is the ladder's first or last."""
        return f"{self.best_lr:g}{'*' if self.at_an_end else ''}"

    @property
    def finals(self) -> list[float]:
        """Last losses in nats at the best rate, one a seed."""
        return [run.final_nats for run in self.at_best]

    @property
    def mean_nats(self) -> float:
        """The mean of `finals`."""
        return mean_nats(self.at_best)

    @property
    def nats(self) -> list[list[float]]:
        """Last losses in nats on the ladder, a row a seed."""
        return [[run.final_nats for run in row] for row in self.runs]

    @property
    def lost(self) -> int:
        """How many runs of the ladder did not stay finite."""
        return sum(not run.finite for row in self.runs for run in row)

    @property
    def sensitivity(self) -> Sensitivity:
        """As `measure.lr_sensitivity`, over the ladder."""
        losses = [[run.final_nats if run.finite else math.inf for run in row] for row in self.runs]
        return lr_sensitivity(losses, [row[0].first_nats for row in self.runs])

    @property
    def cells(self) -> list[Cell]:
        """Of all its runs."""
        return [run.cell for row in (*self.runs, *self.again.values()) for run in row]

    def less(self, other: "Ladder") -> Estimate:
        """By how many nats it ends above another, each at its best rate; over seeds in pairs."""
        return estimate([a - b for a, b in zip(self.finals, other.finals, strict=True)])

    def data(self) -> dict[str, Any]:
        """For results.json."""
        found = self.sensitivity
        return {
            "warmup_updates": self.warmup_updates,
            "ladder_nats": self.nats,
            "ladder_finite": [[run.finite for run in row] for row in self.runs],
            "best_lr": self.best_lr,
            "best_at_an_end": self.at_an_end,
            "last_loss_nats": self.finals,
            "mean_nats": self.mean_nats,
            "sensitivity_nats": found.value,
            "sensitivity_low": None if math.isnan(found.low) else found.low,
            "sensitivity_high": None if math.isnan(found.high) else found.high,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupPair:
    """One arm, without warm-up and with."""

    without: Ladder
    warm: Ladder

    @property
    def better(self) -> Ladder:
        """The one of both whose mean is lower."""
        return min(self.without, self.warm, key=lambda one: one.mean_nats)

    @property
    def gain(self) -> Estimate:
        """By how many nats the runs without warm-up end above those with."""
        return self.without.less(self.warm)

    def learned(self, unigram_nats: float) -> bool:
        """Whether the better one has; else the pair decides nothing."""
        return learned(self.better.mean_nats, unigram_nats)

    @property
    def ladders(self) -> tuple[Ladder, Ladder]:
        """Both."""
        return self.without, self.warm


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderArm:
    """What is trained over a ladder."""

    base: RunConfig
    """All but placement, warm-up, rate and seed."""
    placement: str
    folder: Path
    """Holds `runs/`, a folder for each run."""
    peak_lrs: Sequence[float]

    def cells(self, warmup_updates: int, peak_lrs: Sequence[float], seeds: int, *, after: int = 0) -> list[Cell]:
        """Its runs at these rates with the first `seeds` seeds that come after so many others."""
        return Grid(
            placements_and_warmups=((self.placement, warmup_updates),),
            peak_lrs=tuple(peak_lrs),
            optimizers=(self.base.optimizer.name,),
            seeds=seeds,
        ).cells(replace(self.base, seed=self.base.seed + after), self.folder)


def climb(
    arms: Mapping[_Key, LadderArm],
    config: LadderConfig,
    pieces: Pieces,
    *,
    best_rates: int = 1,
    again_after: int = 0,
) -> dict[tuple[_Key, int], Ladder]:
    """Train what the folder lacks: all arms over their ladders, then with all seeds at their best rates.

    By arm and warm-up. best_rates: how many. again_after: of the first seeds, how many are not trained at the best
    rates; after those that climbed, none that chose a rate judges it.
    Raises UserError for a training that failed, and Interrupted.
    """
    rates = {(key, warmup): arm.peak_lrs for key, arm in arms.items() for warmup in config.warmups}
    climbed = _runs(arms, rates, range(1, config.ladder_seeds + 1), "the ladder", pieces)
    rows = {
        each: [[climbed[each, lr, seed] for lr in lrs] for seed in range(1, config.ladder_seeds + 1)]
        for each, lrs in rates.items()
    }
    best = {each: lowest_rates(rows[each], lrs, best_rates) for each, lrs in rates.items()}
    seeds = range(again_after + 1, again_after + config.seeds + 1)
    again = _runs(arms, best, seeds, "the best rates", pieces)
    return {
        (key, warmup): Ladder(
            warmup_updates=warmup,
            peak_lrs=lrs,
            runs=rows[key, warmup],
            again={lr: [again[(key, warmup), lr, seed] for seed in seeds] for lr in best[key, warmup]},
        )
        for (key, warmup), lrs in rates.items()
    }


def lowest_rates(rows: Sequence[Sequence[_LadderRun]], peak_lrs: Sequence[float], count: int) -> tuple[float, ...]:
    """The rates with the lowest mean losses, rising; the smaller first of those that are equal."""
    means = {lr: mean_nats(column) for lr, column in zip(peak_lrs, zip(*rows, strict=True), strict=True)}
    return tuple(sorted(sorted(means, key=lambda lr: (means[lr], lr))[:count]))


def mean_nats(runs: Sequence[_LadderRun]) -> float:
    """Mean of the last losses in nats."""
    return math.fsum(run.final_nats for run in runs) / len(runs)


def gains_at_most(pairs: Mapping[_Key, WarmupPair], edge: float, unigram_nats: float) -> dict[_Key, Answer]:
    """Whether a warm-up gains at most so much, of all pairs together by Holm; None where neither run learned."""
    family = {key: (pair.gain, -math.inf, edge) for key, pair in pairs.items() if pair.learned(unigram_nats)}
    return {**dict.fromkeys(pairs), **holm(family)}


def trained_by(pairs: Iterable[WarmupPair]) -> dict[str, dict[str, Any]]:
    """By run, the source that trained it."""
    ladders = (ladder for pair in pairs for ladder in pair.ladders)
    return sources({cell.folder.path: cell for ladder in ladders for cell in ladder.cells}.values())


def machines(ladders: Iterable[Ladder]) -> str:
    """What trained their runs, in words."""
    environments = (cell.folder.environment() for ladder in ladders for cell in ladder.cells)
    kinds = {(one["accelerator"] or one["processor"], one["torch"]) for one in environments}
    return ", ".join(f"{machine}, torch {torch}" for machine, torch in sorted(kinds))


def end_columns(
    ladders_of: Callable[[Any], Sequence[Ladder]],
    extra: Sequence[tuple[str, Callable[[Ladder], Any]]] = (),
    *,
    words: Sequence[str] = ("no warm-up", "warm-up"),
) -> list[tuple[str, Callable[[Any], Any]]]:
    """Columns of a table whose rows have ladders, by `words`: loss, best rate, sensitivity and `extra` of each."""

    def of(place: int, value: Callable[[Ladder], Any]) -> Callable[[Any], Any]:
        return lambda row: value(ladders_of(row)[place])

    ends = [("rate", lambda one: one.rate), ("sensitivity", lambda one: one.sensitivity.value), *extra]
    made: list[tuple[str, Callable[[Any], Any]]] = []
    for place, named in enumerate(words):
        made.append((f"loss, {named}", of(place, lambda one: one.mean_nats)))
        made += [(heading, of(place, value)) for heading, value in ends]
    return made


def _runs(
    arms: Mapping[_Key, LadderArm],
    rates: Mapping[tuple[_Key, int], Sequence[float]],
    seeds: range,
    stage: str,
    pieces: Pieces,
) -> dict[tuple[tuple[_Key, int], float, int], _LadderRun]:
    """By arm and warm-up, rate and seed; the first seed of all is trained first."""
    cells = [
        (each, cell)
        for each, lrs in rates.items()
        for cell in arms[each[0]].cells(each[1], lrs, len(seeds), after=seeds.start - 1)
    ]
    cells.sort(key=lambda one: one[1].seed)
    runs = train([cell for _, cell in cells], stage, pieces)
    return {(each, cell.arm.peak_lr, cell.seed): run for (each, cell), run in zip(cells, runs, strict=True)}


def train(cells: Sequence[Cell], stage: str, pieces: Pieces) -> list[_LadderRun]:
    """Train what the folder lacks, and say where each of the cells went.

    stage: what the trainings are called while they run. Raises UserError for a training that failed, and Interrupted.
    """
    train_all(cells, stage, pieces)
    return [_run(cell) for cell in cells]


def train_all(cells: Sequence[Cell], stage: str, pieces: Pieces) -> None:
    """The same of any cells; unless `pieces` says another number, on CPUs one run a core, and one on a device."""
    total = sum(int(cell.config.train.duration) for cell in cells)

    def watch(states: Iterable[CellState]) -> None:
        # A run that ended early takes no more updates.
        done = sum(int(s.cell.config.train.duration) if s.over else s.update for s in states)
        pieces.watch(f"updates of {stage}", done, total)

    write_configs(cells)
    # Of runs that are over, the device need not be there.
    room = available_cores() if cells[0].config.train.device == "cpu" else 1
    states = run_cells(list(cells), at_once=pieces.processes or room, watch=watch)
    failed = [f"{s.cell.name}: {s.message} (log: {s.cell.log_file})" for s in states if s.status == "failed"]
    if failed:
        raise UserError("\n".join(failed))


def _run(cell: Cell) -> _LadderRun:
    events = cell.folder.events()
    first = next((event["nll_nats"] for event in events if event["event"] == "update"), math.inf)
    validations = [event["nll_nats"] for event in events if event["event"] == "validation"]
    finite = events[-1]["event"] == "finished" and math.isfinite(validations[-1])
    return _LadderRun(cell=cell, final_nats=validations[-1] if finite else first, first_nats=first, finite=finite)
