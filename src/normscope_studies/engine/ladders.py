"""Ladders of rates: every arm at every rate with few seeds, then at its best rates with others; and
warm-up's gain.

An arm is a placement under an optimiser with a warm-up; `climb` trains what the folder lacks of all
of them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.compare.grid import Cell
from normscope.measure import Estimate, Sensitivity, lr_sensitivity
from normscope.report.words import counted

from .estimates import estimate
from .judging import Answer, holm, learned
from .pieces import Pieces
from .trainings import NOTHING_LATER, LaterCells, train_all

_ArmKey = tuple[str, str, int]
"""Placement, optimiser and warm-up in updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRun:
    """Says where a training went."""

    cell: Cell
    final_nats: float
    """Validation loss per target token at the end; of a run that did not stay finite, that of its
    first batch.
    """
    first_nats: float
    """The loss of the first batch, before the first update."""
    finite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The runs of one arm with one warm-up, over the rates."""

    warmup_updates: int
    peak_lrs: Sequence[float]
    """Rising."""
    runs: Sequence[Sequence[LadderRun]]
    """A row for each seed that climbed the ladder, a column for each rate."""
    again: Mapping[float, Sequence[LadderRun]]
    """Runs at the rates with the lowest losses on the ladder: by rate, one run a seed."""

    @property
    def best_lr(self) -> float:
        """The rate with the lowest mean over the seeds that were trained again; the smaller of two
        that are equal.
        """
        return min(sorted(self.again), key=lambda lr: mean_nats(self.again[lr]))

    @property
    def at_best(self) -> Sequence[LadderRun]:
        """The runs at the best rate, one a seed."""
        return self.again[self.best_lr]

    @property
    def at_an_end(self) -> bool:
        """Returns whether the best rate is the ladder's first or last, so that a better one may lie
        beyond.
        """
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
        return final_losses(self.runs)

    @property
    def lost(self) -> int:
        """Counts the runs of the ladder that did not stay finite."""
        return sum(not run.finite for row in self.runs for run in row)

    @property
    def sensitivity(self) -> Sensitivity:
        """Measures the sensitivity over the ladder, as `measure.lr_sensitivity`."""
        losses = []
        for row in self.runs:
            losses.append([run.final_nats if run.finite else math.inf for run in row])
        return lr_sensitivity(losses, [row[0].first_nats for row in self.runs])

    @property
    def cells(self) -> list[Cell]:
        """Returns the cells of all its runs."""
        return [run.cell for row in (*self.runs, *self.again.values()) for run in row]

    def data(self) -> dict[str, Any]:
        """Returns what results.json holds of it."""
        found = self.sensitivity
        finite = []
        for row in self.runs:
            finite.append([run.finite for run in row])
        again = {}
        for lr, runs in self.again.items():
            again[f"{lr:g}"] = [run.final_nats for run in runs]
        return {
            "peak_lrs": list(self.peak_lrs),
            "warmup_updates": self.warmup_updates,
            "ladder_nats": self.nats,
            "ladder_finite": finite,
            "best_lr": self.best_lr,
            "best_at_an_end": self.at_an_end,
            "last_loss_nats": self.finals,
            "mean_nats": self.mean_nats,
            "sensitivity_nats": found.value,
            "sensitivity_low": found.low,
            "sensitivity_high": found.high,
            "again_nats": again,
            "lost": self.lost,
        }

    def less(self, other: "Ladder") -> Estimate:
        """Measures by how many nats it ends above another, each at its best rate; over seeds in
        pairs.
        """
        return estimate([a - b for a, b in zip(self.finals, other.finals, strict=True)])


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
        """Measures by how many nats the runs without warm-up end above those with."""
        return self.without.less(self.warm)

    def learned(self, unigram_nats: float) -> bool:
        """Returns whether the better one has; else the pair decides nothing."""
        return learned(self.better.mean_nats, unigram_nats)


def climb(
    rates: Mapping[_ArmKey, Sequence[float]],
    cells_of: Callable[[_ArmKey, Sequence[float], range], list[Cell]],
    pieces: Pieces,
    *,
    climbing: int,
    seeds: int,
    best_rates: int,
) -> dict[_ArmKey, Ladder]:
    """Train what the folder lacks: all arms over their ladders with the first seeds, then the best
    rates with others.

    rates: rising. cells_of: the runs of an arm at some rates and seeds. climbing: how many seeds
    climb; `seeds` others are trained at the `best_rates` best rates, since none that chose a rate
    judges it. Raises UserError for a training that failed, and Interrupted.
    """

    def cells_at(
        asked: Mapping[_ArmKey, Sequence[float]], seeds: range
    ) -> list[tuple[_ArmKey, Cell]]:
        """Returns the cells with their arms; the first seed of all comes first."""
        cells = [(key, cell) for key, lrs in asked.items() for cell in cells_of(key, lrs, seeds)]
        return sorted(cells, key=lambda one: one[1].seed)

    def trained(
        asked: Mapping[_ArmKey, Sequence[float]], seeds: range, stage: str, later: LaterCells
    ) -> dict[tuple[_ArmKey, float, int], LadderRun]:
        """Returns runs by arm, rate and seed."""
        cells = cells_at(asked, seeds)
        runs = train([cell for _, cell in cells], stage, pieces, later=later)
        return {
            (key, cell.arm.peak_lr, cell.seed): run
            for (key, cell), run in zip(cells, runs, strict=True)
        }

    first, others = range(1, climbing + 1), range(climbing + 1, climbing + seeds + 1)
    any_rates = {key: lrs[:best_rates] for key, lrs in rates.items()}
    later = {"the best rates": [cell for _, cell in cells_at(any_rates, others)]}
    climbed = trained(rates, first, "the ladder", later)
    rows: dict[_ArmKey, list[list[LadderRun]]] = {key: [] for key in rates}
    for key, lrs in rates.items():
        for seed in first:
            rows[key].append([climbed[key, lr, seed] for lr in lrs])
    best = {key: lowest_rates(rows[key], lrs, best_rates) for key, lrs in rates.items()}
    judging = trained(best, others, "the best rates", NOTHING_LATER)
    ladders = {}
    for key, lrs in rates.items():
        again = {}
        for lr in best[key]:
            again[lr] = [judging[key, lr, seed] for seed in others]
        ladders[key] = Ladder(warmup_updates=key[-1], peak_lrs=lrs, runs=rows[key], again=again)
    return ladders


def lowest_rates(
    rows: Sequence[Sequence[LadderRun]], peak_lrs: Sequence[float], count: int
) -> tuple[float, ...]:
    """Returns the rates with the lowest mean losses, rising; the smaller first of those that are
    equal.
    """
    means = {
        lr: mean_nats(column) for lr, column in zip(peak_lrs, zip(*rows, strict=True), strict=True)
    }
    return tuple(sorted(sorted(means, key=lambda lr: (means[lr], lr))[:count]))


def final_losses(rows: Sequence[Sequence[LadderRun]]) -> list[list[float]]:
    """Returns the last losses in nats of rows of runs, as rows."""
    losses = []
    for row in rows:
        losses.append([run.final_nats for run in row])
    return losses


def mean_nats(runs: Sequence[LadderRun]) -> float:
    """Returns the mean of the last losses in nats."""
    return math.fsum(run.final_nats for run in runs) / len(runs)


def gains_at_most(
    pairs: Mapping[_ArmKey, WarmupPair], edge: float, unigram_nats: float
) -> dict[_ArmKey, Answer]:
    """Judges whether a warm-up gains at most so much, of all pairs together by Holm; None where
    neither run learned.
    """
    family = {
        key: (pair.gain, -math.inf, edge)
        for key, pair in pairs.items()
        if pair.learned(unigram_nats)
    }
    return {**dict.fromkeys(pairs), **holm(family)}


def train(
    cells: Sequence[Cell],
    stage: str,
    pieces: Pieces,
    evaluate: Callable[[Cell], list[list[str]]] | None = None,
    *,
    later: LaterCells | None = None,
) -> list[LadderRun]:
    """Train what the folder lacks, and say where each of the cells went.

    stage: what the trainings are called while they run. evaluate: as of `run_cells`. later: what is
    trained after them, for a plan; None where that is not known. Raises UserError for a training
    that failed, and Interrupted.
    """
    train_all(cells, stage, pieces, evaluate, later=later)
    return [_run(cell) for cell in cells]


def _run(cell: Cell) -> LadderRun:
    events = cell.folder.events()
    first = next((event["nll_nats"] for event in events if event["event"] == "update"), math.inf)
    validations = [event["nll_nats"] for event in events if event["event"] == "validation"]
    finite = events[-1]["event"] == "finished" and math.isfinite(validations[-1])
    return LadderRun(
        cell=cell, final_nats=validations[-1] if finite else first, first_nats=first, finite=finite
    )


def sources(cells: Iterable[Cell]) -> dict[str, dict[str, Any]]:
    """Returns by run the version, the hash of the source and the commit that its environment names.

    A folder may hold runs that an earlier source trained; finished runs are not trained again.
    """
    keys = ("normscope", "source_sha256", "commit")
    found = {}
    for cell in cells:
        environment = cell.folder.environment()
        found[cell.name] = {key: environment.get(key, "") for key in keys}
    return found


def in_words(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the sources of several runs in a line: "source 1a2b3c4d5e6f (4 runs)"."""
    counts = Counter(str(one["source_sha256"])[:12] or "unknown" for one in found.values())
    return ", ".join(f"source {name} ({counted(count, 'run')})" for name, count in counts.items())


def machines(cells: Iterable[Cell]) -> str:
    """Says what they were trained on and with which torch, in words."""
    found = (cell.folder.environment() for cell in cells)
    return ", ".join(
        sorted({f"{one['accelerator'] or one['processor']}, torch {one['torch']}" for one in found})
    )
