"""What a fine-tuning search says: the best setting, its mean over seeds with 95 % intervals, and the majority class."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import UserError
from ..measure import Summary
from .cells import Outcome, Setting, TuningCell


@dataclass(frozen=True, slots=True)
class Interval:
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

    setting: Setting
    accuracies: tuple[float, ...]
    """Of the seeds that ended finite, in their order."""
    f1s: tuple[float, ...]
    """Empty where there are more than two labels."""
    accuracy: Interval
    f1: Interval | None
    accuracy_of_other_seeds: Interval | None
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


def interval(values: Sequence[float]) -> Interval:
    """Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    summary = Summary()
    for value in values:
        summary.add({"value": value})
    found = summary.estimates()["value"]
    half_width = float(found.half_width)
    return Interval(float(found.mean), None if math.isnan(half_width) else half_width, len(values))


def best_setting(cells: Iterable[TuningCell]) -> Setting:
    """By accuracy, ties by lower loss, then the earlier cell. Raises UserError where no run ended finite."""
    ended = [(outcome, cell.setting) for cell in cells if (outcome := cell.outcome()) is not None]
    if not ended:
        raise UserError("no run of the search stayed finite; lower --rates")
    return max(ended, key=lambda pair: rank(pair[0]))[1]


def rank(outcome: Outcome) -> tuple[float, float]:
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
