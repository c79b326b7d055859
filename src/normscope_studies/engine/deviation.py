"""How far curves that were measured over draws lie from those that were predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from normscope.evidence.judging import Answer, all_hold, answers
from normscope.measure.statistics import t_quantile
from normscope.report.words import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One curve over depth, (L,) each: what was measured over draws, its standard error, and what was predicted."""

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
        """The largest absolute deviation at any place, and the standard error there; in per cent of the prediction."""
        at = int(np.abs(self.deviation).argmax())
        return 100 * float(abs(self.deviation[at])), 100 * float(self.relative_error[at])

    def within(self, limit: float) -> Answer:
        """Whether the 95 % interval of the deviation lies within ± limit at every depth."""
        half = (t_quantile(0.95, self.draws - 1) if self.draws > 1 else np.nan) * self.error
        off, allowed = self.measured - self.predicted, limit * np.abs(self.predicted)
        return all_hold(answers(off - half, off + half, -allowed, allowed))


def mean_over_draws(draws: ArrayLike, predicted: ArrayLike) -> Compared:
    """The mean over draws; draws: (draws, L)."""
    draws = np.asarray(draws, dtype=np.float64)
    return Compared(
        measured=draws.mean(0), error=_error(draws), predicted=np.asarray(predicted, np.float64), draws=len(draws)
    )


def root_mean_square(squares: ArrayLike, predicted: ArrayLike) -> Compared:
    """The root of the mean over draws, which a few loud draws raise; squares: (draws, L) squared norms."""
    squares = np.asarray(squares, dtype=np.float64)
    root = np.sqrt(squares.mean(0))
    # d√m = dm / (2√m)
    error = _share(_error(squares), 2 * root)
    return Compared(measured=root, error=error, predicted=np.asarray(predicted, np.float64), draws=len(squares))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Deviations of several curves, in per cent of the prediction."""

    limit: float
    """What they are held against."""
    largest: float
    """Largest absolute deviation at any depth, and the standard error there."""
    standard_error: float
    root_mean_square: float
    """Over all depths of all curves, each counting the same."""
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
        """By the name of the curve."""
        return {
            **dict.fromkeys(self.within, True),
            **dict.fromkeys(self.beyond, False),
            **dict.fromkeys(self.undecided, None),
        }

    def words(self, place: str = "l") -> str:
        """How far they are off, in a clause; place: what a place along a curve is called."""
        return (
            f"at most {number(self.largest, 2)} % off ({self.where}, {place} = {self.place}; standard error "
            f"{number(self.standard_error, 2)} %), {number(self.root_mean_square, 2)} % root mean square"
        )


def spread_of(curves: Mapping[str, Sequence[Compared]], *, limit_percent: float, first: int = 0) -> Spread:
    """Over curves by name; those of one name stand or fall together. `first`: what the first place is called.

    Raises ValueError without any.
    """
    if not curves:
        raise ValueError("no curves to compare")
    every = [(name, one) for name, several in curves.items() for one in several]
    where, worst = max(every, key=lambda named: named[1].largest_off[0])
    values = np.concatenate([100 * one.deviation for _, one in every])
    holds = {name: all_hold([one.within(limit_percent / 100) for one in several]) for name, several in curves.items()}
    within, beyond, undecided = (
        tuple(name for name, answer in holds.items() if answer is state) for state in (True, False, None)
    )
    return Spread(
        limit=limit_percent,
        largest=worst.largest_off[0],
        standard_error=worst.largest_off[1],
        root_mean_square=float(np.sqrt(np.square(values).mean())),
        where=where,
        place=int(np.abs(worst.deviation).argmax()) + first,
        within=within,
        beyond=beyond,
        undecided=undecided,
    )


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
