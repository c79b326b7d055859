"""The runs of a fine-tuning search, settings times seeds, and their summary.

The summary is the best setting, its mean over seeds with 95 % intervals, and the share of the majority class.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..compare.state import BesideRuns
from ..errors import UserError
from ..evidence.estimates import estimate
from ..report.words import counted
from ..runs.config import refuse_other_configuration, replaced, resolve
from ..tasks.pair_classification import PairRunConfig
from ..train import RunFolder


@dataclass(frozen=True, slots=True, order=True)
class _TuningSetting:
    """What is searched over."""

    batch_sequences: int
    peak_lr: float
    epochs: int

    @property
    def name(self) -> str:
        """Safe as a file name."""
        return f"batch-{self.batch_sequences}_lr-{self.peak_lr!r}_epochs-{self.epochs}"

    @property
    def words(self) -> str:
        """For a sentence."""
        return f"batch {self.batch_sequences}, rate {self.peak_lr:g}, {counted(self.epochs, 'epoch')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """The defaults span the ranges of Xiong et al. 2020, appendix A.2: batches of 16 or 32, rates from 1e-5 to 1e-4, 3
    to 8 epochs, 6 seeds. Raises UserError for an empty or repeated axis, and for values out of range."""

    batch_sizes: tuple[int, ...] = (16, 32)
    rates: tuple[float, ...] = (1e-5, 2e-5, 3e-5, 5e-5, 1e-4)
    epochs: tuple[int, ...] = (3, 4, 8)
    seeds: int = 6
    warmup_share: float = 0.1
    """Of a run's updates (google-research/bert, run_classifier.py: warmup_proportion)."""

    def __post_init__(self) -> None:
        for axis in ("batch_sizes", "rates", "epochs"):
            values = getattr(self, axis)
            if not values or len(set(values)) < len(values):
                raise UserError(f"{axis.replace('_', ' ')}: give one or more different values, got {values}")
            if not all(value > 0 for value in values):
                raise UserError(f"{axis.replace('_', ' ')} must be positive, got {values}")
        if self.seeds < 1:
            raise UserError(f"seeds must be at least 1, got {self.seeds}")
        if not 0 <= self.warmup_share <= 1:
            raise UserError(f"the warm-up share must lie in [0, 1], got {self.warmup_share}")

    def settings(self) -> Iterator[_TuningSetting]:
        for batch, rate, epochs in itertools.product(self.batch_sizes, self.rates, self.epochs):
            yield _TuningSetting(batch, rate, epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairScores:
    """What a run's last validation says, after the last of its updates."""

    accuracy: float
    f1: float | None
    """None where there are more than two labels."""
    nll_nats: float


@dataclass(frozen=True, slots=True)
class TuningCell(BesideRuns):
    """One run of the search."""

    setting: _TuningSetting
    seed: int
    folder: RunFolder
    config: PairRunConfig

    @property
    def name(self) -> str:
        return f"{self.setting.name}_seed-{self.seed}"

    def columns(self) -> dict[str, str]:
        """What tells it from the others, by heading."""
        setting = self.setting
        values = (str(setting.batch_sequences), f"{setting.peak_lr:g}", str(setting.epochs), str(self.seed))
        return dict(zip(("batch", "rate", "epochs", "seed"), values, strict=True))

    def outcome(self) -> _PairScores | None:
        """None for a run that is not finished, or that stopped because a number was not finite."""
        events = self.folder.events()
        if [event["event"] for event in events[-1:]] != ["finished"]:
            return None
        last = [event for event in events if event["event"] == "validation"][-1]
        return _PairScores(accuracy=last["accuracy"], f1=last.get("f1"), nll_nats=last["nll_nats"])


def tuning_cells(
    base: PairRunConfig,
    settings: Iterable[_TuningSetting],
    seeds: Iterable[int],
    folder: Path,
    *,
    train_pairs: int,
    warmup_share: float,
) -> list[TuningCell]:
    """All settings with all seeds, below `folder`; nothing is written.

    train_pairs: of the training split, by which the warm-up's updates are counted. Raises UserError for values that a
    configuration does not allow, and where a run folder holds something else.
    """
    cells = []
    for seed, setting in itertools.product(seeds, list(settings)):
        updates = -(-train_pairs // setting.batch_sequences) * setting.epochs
        config = replaced(
            base,
            seed=seed,
            data__batch_sequences=setting.batch_sequences,
            optimizer__peak_lr=setting.peak_lr,
            schedule__warmup_updates=int(updates * warmup_share),
            train__duration=f"{setting.epochs} epochs",
        )
        run = RunFolder(folder / "runs" / f"{setting.name}_seed-{seed}")
        resolved = resolve(config, run)
        refuse_other_configuration(run, resolved)
        cells.append(TuningCell(setting, seed, run, resolved))
    return cells


@dataclass(frozen=True, slots=True)
class _Interval:
    """Mean over seeds and its 95 % interval, mean ± half_width, by Student's t."""

    mean: float
    half_width: float | None
    """None for one seed."""
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.4f}" if self.half_width is None else f"{self.mean:.4f} ± {self.half_width:.4f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSummary:
    """Of one setting over its seeds."""

    setting: _TuningSetting
    accuracies: tuple[float, ...]
    """Of the seeds that ended finite, in their order."""
    f1s: tuple[float, ...]
    """Empty where there are more than two labels."""
    accuracy: _Interval
    f1: _Interval | None
    accuracy_of_other_seeds: _Interval | None
    """Without the first seed, by which the setting was chosen: what the choice cannot have flattered."""
    non_finite_seeds: tuple[int, ...]
    majority_share: float
    """Accuracy of always giving the more frequent label."""

    @property
    def above_majority(self) -> bool | None:
        """By more than the interval; None for one seed, which has none."""
        if self.accuracy.half_width is None:
            return None
        return self.accuracy.mean - self.accuracy.half_width > self.majority_share

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self) | {"above_majority_by_more_than_the_interval": self.above_majority}


def interval(values: Sequence[float]) -> _Interval:
    """Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    found = estimate(values)
    half_width = float(found.half_width)
    return _Interval(float(found.mean), None if math.isnan(half_width) else half_width, len(values))


def best_setting(cells: Iterable[TuningCell]) -> _TuningSetting:
    """By accuracy, ties by lower loss, then the earlier cell. Raises UserError where no run ended finite."""
    ended = [(outcome, cell.setting) for cell in cells if (outcome := cell.outcome()) is not None]
    if not ended:
        raise UserError("no run of the search stayed finite; lower --rates")
    return max(ended, key=lambda pair: rank(pair[0]))[1]


def rank(outcome: _PairScores) -> tuple[float, float]:
    """Larger for what is to be preferred."""
    return outcome.accuracy, -outcome.nll_nats


def summary(cells: Sequence[TuningCell], *, majority_share: float) -> TuningSummary:
    """Over finished runs of one setting. Raises UserError where none stayed finite."""
    outcomes = {cell.seed: cell.outcome() for cell in cells}
    finite = [outcome for outcome in outcomes.values() if outcome is not None]
    if not finite:
        raise UserError(f"no seed of {cells[0].setting.words} stayed finite; lower --rates")
    others = [outcome.accuracy for seed, outcome in outcomes.items() if outcome is not None and seed != cells[0].seed]
    f1s = tuple(outcome.f1 for outcome in finite if outcome.f1 is not None)
    accuracies = tuple(outcome.accuracy for outcome in finite)
    return TuningSummary(
        setting=cells[0].setting,
        accuracies=accuracies,
        f1s=f1s,
        accuracy=interval(accuracies),
        f1=interval(f1s) if f1s else None,
        accuracy_of_other_seeds=interval(others) if others else None,
        non_finite_seeds=tuple(seed for seed, outcome in outcomes.items() if outcome is None),
        majority_share=majority_share,
    )


def table(cells: Sequence[TuningCell]) -> list[str]:
    """The searched settings, for the user."""
    rows = [f"{'batch':>5}  {'rate':>7}  {'epochs':>6}  {'accuracy':>8}  {'F1':>6}  {'loss, nats':>10}"]
    for cell in cells:
        setting, outcome = cell.setting, cell.outcome()
        head = f"{setting.batch_sequences:>5}  {setting.peak_lr:>7g}  {setting.epochs:>6}"
        if outcome is None:
            rows.append(f"{head}  not finite")
        else:
            f1 = "" if outcome.f1 is None else f"{outcome.f1:.4f}"
            rows.append(f"{head}  {outcome.accuracy:>8.4f}  {f1:>6}  {outcome.nll_nats:>10.4f}")
    return rows


def lines(found: TuningSummary, *, task: str, positive: str | None, settings: int) -> list[str]:
    """For the user. settings: how many the one of the summary was chosen from."""
    seeds = f"{found.accuracy.count} seed{'s' if found.accuracy.count > 1 else ''}"
    f1 = f", F1 of {positive!r} {found.f1}" if found.f1 is not None else ""
    said = [f"{task}: accuracy {found.accuracy}{f1} ({found.setting.words}; {seeds}, 95 % intervals)"]
    if found.non_finite_seeds:
        said.append(f"not finite, and left out: seed {', '.join(map(str, found.non_finite_seeds))}")
    if settings > 1:
        others = found.accuracy_of_other_seeds
        alone = "" if others is None else f"; the other seeds alone: accuracy {others}"
        said.append(f"the setting was chosen on the same held-out pairs, by the first seed{alone}")
    verdict = {True: "yes", False: "no", None: "one seed has no interval"}[found.above_majority]
    said.append(f"majority class {found.majority_share:.4f}; above it by more than the interval: {verdict}")
    return said
