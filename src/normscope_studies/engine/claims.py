"""Claims with the verdict that the settings they were looked at in give them: one rule, one
wording.

Of curves over depth it is how far those measured over draws lie from those predicted.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from normscope.measure import Estimate
from normscope.measure.statistics import t_quantile
from normscope.report.chart import Series
from normscope.report.words import number, span

from .estimates import part, proportion, with_interval
from .judging import (
    Answer,
    all_hold,
    answered,
    answers,
    between,
    conditions_of,
    verdict_of_a_bound,
)
from .page import Claim, line, measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One curve over depth, (L,) each: what was measured over draws, its standard error, and what
    was predicted.
    """

    measured: NDArray[np.float64]
    error: NDArray[np.float64]
    """The standard error of `measured`; NaN for one draw."""
    predicted: NDArray[np.float64]
    draws: int

    @property
    def deviation(self) -> NDArray[np.float64]:
        """measured / predicted - 1; 0 where both are 0, infinite where the prediction alone is."""
        return _share(self.measured - self.predicted, self.predicted)

    @property
    def relative_error(self) -> NDArray[np.float64]:
        """The standard error as a share of the prediction."""
        return _share(self.error, self.predicted)

    @property
    def largest_off(self) -> tuple[float, float]:
        """The largest absolute deviation at any place, and the standard error there; in per cent of
        the prediction.
        """
        at = int(np.abs(self.deviation).argmax())
        return 100 * float(abs(self.deviation[at])), 100 * float(self.relative_error[at])

    def within(self, limit: float) -> Answer:
        """Judges whether the 95 % interval of the deviation lies within ± limit at every depth."""
        half = (t_quantile(0.95, self.draws - 1) if self.draws > 1 else np.nan) * self.error
        off, allowed = self.measured - self.predicted, limit * np.abs(self.predicted)
        return all_hold(answers(off - half, off + half, -allowed, allowed))


def mean_over_draws(draws: ArrayLike, predicted: ArrayLike) -> Compared:
    """Returns the mean over draws; draws: (draws, L)."""
    draws = np.asarray(draws, dtype=np.float64)
    return Compared(
        measured=draws.mean(0),
        error=_error(draws),
        predicted=np.asarray(predicted, np.float64),
        draws=len(draws),
    )


def root_mean_square(squares: ArrayLike, predicted: ArrayLike) -> Compared:
    """Returns the root of the mean over draws, which a few loud draws raise; squares: (draws, L)
    squared norms.
    """
    squares = np.asarray(squares, dtype=np.float64)
    root = np.sqrt(squares.mean(0))
    # d√m = dm / (2√m)
    error = _share(_error(squares), 2 * root)
    return Compared(
        measured=root, error=error, predicted=np.asarray(predicted, np.float64), draws=len(squares)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Deviations of several curves, in per cent of the prediction."""

    limit: float
    """The deviation that they are held against."""
    largest: float
    """Largest absolute deviation at any depth, and the standard error there."""
    standard_error: float
    root_mean_square: float
    """The root mean square over all depths of all curves, each counting the same."""
    where: str
    """The curve with the largest one, and its place along it, from `first`."""
    place: int
    within: tuple[str, ...]
    """Curves whose interval stays within the limit at every depth."""
    beyond: tuple[str, ...]
    """Curves whose whole interval lies beyond the limit at some depth."""
    undecided: tuple[str, ...]
    """The others: more draws would tell."""

    @property
    def holds(self) -> dict[str, Answer]:
        """Returns the answers, by the name of the curve."""
        return {
            **dict.fromkeys(self.within, True),
            **dict.fromkeys(self.beyond, False),
            **dict.fromkeys(self.undecided, None),
        }

    @property
    def words(self) -> str:
        """Says how far they are off, in a clause."""
        return (
            f"at most {number(self.largest, 2)} % off ({self.where}, l = {self.place}; standard "
            f"error {number(self.standard_error, 2)} %), {number(self.root_mean_square, 2)} % root "
            "mean square"
        )


def spread_of(
    curves: Mapping[str, Sequence[Compared]], *, limit_percent: float, first: int = 0
) -> Spread:
    """Returns the spread over curves by name; those of one name stand or fall together. `first`:
    the name of the first place.
    """
    every = [(name, one) for name, several in curves.items() for one in several]
    where, worst = max(every, key=lambda named: named[1].largest_off[0])
    values = np.concatenate([100 * one.deviation for _, one in every])
    holds = {}
    for name, several in curves.items():
        holds[name] = all_hold([one.within(limit_percent / 100) for one in several])
    return Spread(
        limit=limit_percent,
        largest=worst.largest_off[0],
        standard_error=worst.largest_off[1],
        root_mean_square=float(np.sqrt(np.square(values).mean())),
        where=where,
        place=int(np.abs(worst.deviation).argmax()) + first,
        within=tuple(answered(holds, True)),
        beyond=tuple(answered(holds, False)),
        undecided=tuple(answered(holds, None)),
    )


def beside_prediction(label: str, hue: int, curve: Compared, *, first: int = 0) -> list[Series]:
    """Draws what was measured over draws, in a band of two standard errors, and its prediction;
    first: what x starts at.
    """
    x = range(first, first + len(curve.measured))
    return [
        measured(f"{label}, measured", hue, x, curve.measured, 2 * curve.error),
        line(f"{label}, predicted", "predicted", hue, x, curve.predicted),
    ]


def as_data(curve: Compared) -> dict[str, Any]:
    """For results.json."""
    return {"measured": curve.measured, "standard_error": curve.error, "predicted": curve.predicted}


def _error(draws_ND: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(draws_ND) == 1:
        return np.full(draws_ND.shape[1:], np.nan)
    deviation: NDArray[np.float64] = draws_ND.std(0, ddof=1) / np.sqrt(len(draws_ND))
    return deviation


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((part == 0) & (whole == 0), 0.0, np.divide(part, whole))


_ClaimBound = float | Mapping[str, float]
"""One for all settings, or each its own."""
_LISTED = 12
"""Settings whose values are all named; of more, the lowest and the highest are."""


def claim(
    name: str,
    statement: str,
    *,
    source: str,
    value: str,
    holds: Mapping[str, Estimate | Answer],
    least: _ClaimBound = -math.inf,
    greatest: _ClaimBound = math.inf,
    shown: Callable[[Estimate], str] = with_interval,
    beside: str = "",
    decided: Mapping[str, Answer] = {},
    slack: float = 1.0,
) -> Claim:
    """A claim that a value lies between bounds, judged in every setting and then over all of them.

    value: what the numbers are, with their unit; the sentence of what was found begins with it.
    holds: by setting, the value with its interval, or an answer where there is no single number.
    shown: how a value is written. beside: more sentences on what was found. decided: answers of
    settings that more than their own interval decides, such as a family that is judged together.
    slack: of a claim that is a bound, as of `verdict_of_a_bound`. Raises ValueError without a
    setting.
    """
    values = {setting: one for setting, one in holds.items() if isinstance(one, Estimate)}
    answers = {
        setting: between(one, _at(least, setting), _at(greatest, setting))
        if isinstance(one, Estimate)
        else one
        for setting, one in holds.items()
    } | dict(decided)
    found = f"{value}: {listed(values, shown)}" if values else value
    return judged(
        name=name,
        statement=statement,
        source=source,
        found=". ".join(filter(None, [found, beside])),
        holds=answers,
        slack=slack,
    )


def judged(
    *,
    name: str,
    statement: str,
    source: str,
    found: str,
    holds: Mapping[str, Answer],
    slack: float = 1.0,
) -> Claim:
    """The claim with the verdict of its settings, where neither one value nor one sentence says
    what was found.

    slack: of a claim that is a bound, as of `verdict_of_a_bound`. Raises ValueError without a
    setting.
    """
    return Claim(
        name=name,
        statement=statement,
        source=source,
        found=found,
        verdict=verdict_of_a_bound(holds, slack),
        conditions=conditions_of(holds),
    )


def foretold(
    *, name: str, statement: str, source: str, of: str, spread: Spread, beside: str = ""
) -> Claim:
    """The claim that what is predicted lies within a limit of what was measured, judged curve by
    curve.

    of: what was drawn, which the sentence of what was found begins with. beside: more sentences.
    """
    within = f"{len(spread.within)} of {len(spread.holds)} surely within the limit"
    found = ". ".join(filter(None, [f"{of}: {spread.words}; {within}", beside]))
    return judged(name=name, statement=statement, source=source, found=found, holds=spread.holds)


def around(value: _ClaimBound, by: float) -> dict[str, Any]:
    """Returns the bounds of a claim that something is `value`, `by` more or less."""
    if isinstance(value, Mapping):
        return {
            "least": {one: middle - by for one, middle in value.items()},
            "greatest": {one: middle + by for one, middle in value.items()},
        }
    return {"least": value - by, "greatest": value + by}


def of_one_seed(claims: Iterable[Claim]) -> list[Claim]:
    """The claims, each with a sentence that one seed of every arm decides nothing."""
    said = "One seed has no interval, and decides nothing."
    return [replace(one, found=f"{one.found.removesuffix('.')}. {said}") for one in claims]


def by_names(found: Estimate, names: Iterable[str]) -> dict[str, Estimate]:
    """Returns the places of an estimate by the names of the settings that they stand for."""
    return {name: part(found, place) for place, name in enumerate(names)}


def share_claim(
    name: str, statement: str, *, source: str, of: str, holds: Mapping[str, bool]
) -> Claim:
    """A claim that something is so in every one of many cases, with the share of those in which it
    is.

    of: what the cases are, such as "checkpoints". Raises ValueError without one.
    """
    count, total = sum(holds.values()), len(holds)
    low, high = proportion(count, total)
    found = f"{count} of {total} {of} (95 % interval {low:.2f} to {high:.2f})"
    return judged(name=name, statement=statement, source=source, found=found, holds=holds)


def listed(values: Mapping[str, Estimate], shown: Callable[[Estimate], str] = with_interval) -> str:
    """ "Post-LN: 0.120 ± 0.031; Pre-LN: 0.002 ± 0.010"; of very many, from the lowest to the
    highest.
    """
    if len(values) <= _LISTED:
        return "; ".join(f"{setting}: {shown(one)}" for setting, one in values.items())
    lowest, highest = (
        which(values, key=lambda setting: float(values[setting].mean)) for which in (min, max)
    )
    return f"from {shown(values[lowest])}, {lowest}, to {shown(values[highest])}, {highest}"


def shown_span(found: Estimate) -> str:
    """Says the least mean and the greatest of several places."""
    return span(found.mean.tolist())


def shown_factor(found: Estimate) -> str:
    """Returns a factor whose logarithm was estimated, with its interval: "1.20 (1.10 to 1.31)"."""
    with np.errstate(over="ignore"):
        factors = np.exp([found.low, found.mean, found.high])
    low, middle, high = (number(float(factor), 2) for factor in factors)
    return middle if math.isnan(factors[0]) else f"{middle} ({low} to {high})"


def _at(bound: _ClaimBound, setting: str) -> float:
    return bound[setting] if isinstance(bound, Mapping) else bound
