"""A training beside a good one of the same: from which update on they differ, and in what first."""

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..report.plain import plain_values
from ..report.words import counted, learning_rate, significant
from .episodes import LEAST, LEAST_RISE, STANDS_OUT, level_of, logarithms
from .record import History, LoggedSeries

_OTHER_RATE = 0.05
_OTHER_NORM = math.log(2)
_WINDOW = 5
"""Values in a row by which two courses are told apart: a single batch is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The departure of a quantity from that of the good training, with both values at that
    update.
    """

    quantity: str
    update: int
    value: float
    good: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A training beside a good one."""

    source: str
    """The good one's log."""
    common_updates: int
    """Updates at which both have a loss."""
    last_common: int
    loss: float
    good_loss: float
    """Medians of the last common values."""
    partings: tuple[Parting, ...]
    """The departures in the order of their updates: the first to differ is examined first."""

    def to_json(self) -> dict[str, Any]:
        """Returns the comparison as plain values, null where a number was not finite."""
        found: dict[str, Any] = plain_values(self)
        return found


def beside(history: History, good: History) -> Beside:
    """Compares what both recorded at the same updates. Raises ValueError where the losses have no
    update in common.
    """
    common = sorted(set(history.loss.updates).intersection(good.loss.updates))
    if not common:
        raise ValueError(
            f"{good.source} has no update in common with {history.source}: updates "
            f"{good.loss.updates[0]:,} to {good.last_update:,} against "
            f"{history.loss.updates[0]:,} to {history.last_update:,}"
        )
    losses, good_losses = _at(history.loss, common), _at(good.loss, common)
    found = [
        _parting("loss", common, losses, good_losses, _loss_limit(good_losses)),
        _of_rates(history.rate, good.rate),
        _of_norms(history.gradient_norm, good.gradient_norm),
    ]
    last = slice(-min(len(common), LEAST), None)
    return Beside(
        source=good.source,
        common_updates=len(common),
        last_common=common[-1],
        loss=median(losses[last]),
        good_loss=median(good_losses[last]),
        partings=tuple(sorted(filter(None, found), key=lambda one: one.update)),
    )


def beside_words(one: Beside) -> list[str]:
    """Returns the lines that the terminal shows: what differs first, and what follows from it."""
    lines = [
        f"beside {one.source}: the loss is {significant(one.loss, 3)} against "
        f"{significant(one.good_loss, 3)} at update {one.last_common:,}, over "
        f"{counted(one.common_updates, 'update')} that both have"
    ]
    if not one.partings:
        return [*lines, "nothing that both recorded differs by more than its noise"]
    for number, parting in enumerate(one.partings):
        shown = learning_rate if parting.quantity == "learning rate" else _three
        when = "differs first, from" if number == 0 else "differs from"
        lines.append(
            f"the {parting.quantity} {when} update {parting.update:,} on: "
            f"{shown(parting.value)} against {shown(parting.good)}"
        )
    return lines


def _three(value: float) -> str:
    return significant(value, 3)


def _at(series: LoggedSeries, updates: list[int]) -> list[float]:
    known = dict(zip(series.updates, series.values, strict=True))
    return [known[update] for update in updates]


def _loss_limit(good: list[float]) -> float:
    """Returns the least difference of the logarithms of losses that counts: more than both batches'
    noise.
    """
    logs = [value for value in logarithms(good) if value < math.inf]
    if len(logs) < LEAST:
        return LEAST_RISE
    return max(STANDS_OUT / 2 * math.sqrt(2) * level_of(logs).spread, LEAST_RISE)


def _of_rates(rates: LoggedSeries, good: LoggedSeries) -> Parting | None:
    common = sorted(set(rates.updates).intersection(good.updates))
    limit = math.log1p(_OTHER_RATE)
    return _parting("learning rate", common, _at(rates, common), _at(good, common), limit, 1)


def _of_norms(norms: LoggedSeries, good: LoggedSeries) -> Parting | None:
    common = sorted(set(norms.updates).intersection(good.updates))
    return _parting("gradient norm", common, _at(norms, common), _at(good, common), _OTHER_NORM)


def _parting(
    quantity: str,
    updates: list[int],
    values: list[float],
    good: list[float],
    limit: float,
    window: int = _WINDOW,
) -> Parting | None:
    """Returns the first update from which on values are further apart than the limit, in
    logarithms, for as many values in a row as the window has, or up to the end.
    """
    far = [_apart(value, other) > limit for value, other in zip(values, good, strict=True)]
    in_a_row = 0
    for at, is_far in enumerate(far):
        in_a_row = in_a_row + 1 if is_far else 0
        if in_a_row >= min(window, len(far)) or (is_far and at == len(far) - 1 and in_a_row > 1):
            first = at - in_a_row + 1
            return Parting(
                quantity=quantity, update=updates[first], value=values[first], good=good[first]
            )
    return None


def _apart(value: float, other: float) -> float:
    """Returns the distance of two logarithms; infinite where one number is not finite, or is 0, and
    the other is not so.
    """
    usual, usual_other = (math.isfinite(one) and one > 0 for one in (value, other))
    if usual and usual_other:
        return abs(math.log(value / other))
    same = value == other or (math.isnan(value) and math.isnan(other))
    return 0.0 if same else math.inf
