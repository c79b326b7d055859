"""Foretelling trainings from what is known before them, and how well that is done.

Fits are small: two numbers a training, standardised, with a penalty on what they weigh.
"""

# N = trainings, F = features

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.estimates import Floats

MEASURED, PREDICTED = "measured", "predicted"
_MOST_SHARE = 1.5
"""Losses beyond so many times the unigram baseline count as that: how far a training that diverged
has gone says nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTraining:
    """A training that is over, and what was known before it."""

    placement: str
    blocks: int
    seed: int
    peak_lr: float
    last_nats: float
    unigram_nats: float
    failed: bool
    change: Mapping[str, float]
    """The change of the logits by the first update at a rate of 1, `MEASURED` and, where theory
    follows, `PREDICTED`.
    """

    @property
    def counted_nats(self) -> float:
        """The last loss as errors count it."""
        return min(self.last_nats, _MOST_SHARE * self.unigram_nats)

    def log_change(self, which: str) -> float:
        """log10 of E(f* - f)² / rate²: an amplification."""
        return math.log10(self.change[which])


class ForetellingWay(NamedTuple):
    """The numbers that a training's end is predicted from."""

    told: str
    numbers: Callable[[EndedTraining], tuple[float, ...]]
    change: str = ""
    """The one of a training's changes that it asks for; empty for none."""


def _rate(one: EndedTraining) -> float:
    return math.log10(one.peak_lr)


RATE, DEPTH = "rate", "rate and depth"
WAYS: Mapping[str, ForetellingWay] = MappingProxyType(
    {
        RATE: ForetellingWay("the rate alone", lambda one: (_rate(one),)),
        DEPTH: ForetellingWay(
            "the rate and the depth", lambda one: (_rate(one), math.log10(one.blocks))
        ),
        MEASURED: ForetellingWay(
            "the rate and the measured change",
            lambda one: (_rate(one), one.log_change(MEASURED)),
            change=MEASURED,
        ),
        PREDICTED: ForetellingWay(
            "the rate and the predicted change",
            lambda one: (_rate(one), one.log_change(PREDICTED)),
            change=PREDICTED,
        ),
    }
)
"""Logarithms of all. Rate and change together say how far the first update at that rate goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """The predictions of trainings, each by a fit to others: (N,) each."""

    log_odds: Floats
    """The log-odds of failing."""
    nats: Floats
    """The last loss."""


def held_out(
    trainings: Sequence[EndedTraining],
    way: ForetellingWay,
    group_of: Callable[[EndedTraining], Hashable],
) -> Foretold:
    """Predicts every training by a fit to those of other groups. Raises ValueError for one group
    alone.
    """
    groups = [group_of(one) for one in trainings]
    if len(set(groups)) < 2:
        raise ValueError("one group alone has no others to be foretold by")
    x_NF = np.array([way.numbers(one) for one in trainings], dtype=np.float64)
    failed_N = np.array([one.failed for one in trainings])
    nats_N = np.array([one.counted_nats for one in trainings])
    log_odds, nats = np.empty(len(trainings)), np.empty(len(trainings))
    for group in dict.fromkeys(groups):
        own = np.array([one == group for one in groups])
        log_odds[own] = logistic(x_NF[~own], failed_N[~own])(x_NF[own])
        nats[own] = ridge(bent(x_NF[~own]), nats_N[~own])(bent(x_NF[own]))
    return Foretold(log_odds=log_odds, nats=nats)


def bent(x_NF: Floats) -> Floats:
    """Adds all products of two columns: losses are lowest in the middle of a learning-rate
    sweep.
    """
    places = range(x_NF.shape[1])
    products = [x_NF[:, a] * x_NF[:, b] for a in places for b in places if a <= b]
    return np.column_stack([x_NF, *products])


_PENALTY = 1.0
"""The penalty on the squared weights of standardised features; a training counts 1."""
_ROUNDS, _CLOSE = 50, 1e-10

_FittedLine = Callable[[Floats], Floats]


def logistic(x_NF: Floats, labels_N: NDArray[np.bool_]) -> _FittedLine:
    """Log odds of a label by a penalised logistic regression (Newton's method).

    Of labels that are all the same, the same log odds for all: those of half a case on the other
    side.
    """
    count, there = len(labels_N), float(labels_N.sum())
    if there in (0, count):
        constant = math.log((there + 0.5) / (count - there + 0.5))
        return lambda asked: np.full(len(asked), constant)
    design = _Standardised(x_NF)
    x_NG = design(x_NF)
    penalty_G = np.full(x_NG.shape[1], _PENALTY)
    penalty_G[0] = 0.0
    weights_G = np.zeros(x_NG.shape[1])
    for _ in range(_ROUNDS):
        odds_N = 1 / (1 + np.exp(-np.clip(x_NG @ weights_G, -30, 30)))
        slope_G = x_NG.T @ (odds_N - labels_N) + penalty_G * weights_G
        curve_GG = (x_NG.T * (odds_N * (1 - odds_N))) @ x_NG + np.diag(penalty_G)
        step_G = np.linalg.solve(curve_GG, slope_G)
        weights_G = weights_G - step_G
        if np.abs(step_G).max() < _CLOSE:
            break
    return lambda asked: design(asked) @ weights_G


def ridge(x_NF: Floats, y_N: Floats) -> _FittedLine:
    """y by a penalised linear regression."""
    design = _Standardised(x_NF)
    x_NG = design(x_NF)
    penalty_G = np.full(x_NG.shape[1], _PENALTY)
    penalty_G[0] = 0.0
    weights_G = np.linalg.solve(x_NG.T @ x_NG + np.diag(penalty_G), x_NG.T @ y_N)
    return lambda asked: design(asked) @ weights_G


class _Standardised:
    """A column of ones, and features less their mean over their deviation, those of the fit."""

    def __init__(self, x_NF: Floats) -> None:
        self.mean_F = x_NF.mean(0)
        deviation_F = x_NF.std(0)
        self.deviation_F = np.where(deviation_F > 0, deviation_F, 1.0)

    def __call__(self, x_NF: Floats) -> Floats:
        scaled_NF = (x_NF - self.mean_F) / self.deviation_F
        return np.column_stack([np.ones(len(x_NF)), scaled_NF])


def log_loss(log_odds_N: Floats, labels_N: NDArray[np.bool_]) -> float:
    """Returns the cost of the labels, in nats a training; 0.69 for even odds."""
    return float(np.logaddexp(0.0, np.where(labels_N, -log_odds_N, log_odds_N)).mean())


def area_under_curve(scores_N: Floats, labels_N: NDArray[np.bool_]) -> float:
    """Returns the share of pairs in which a labelled one scores above one that is not, ties counted
    half: the area under the ROC curve; NaN where one of the two kinds is missing.
    """
    labelled, others = scores_N[labels_N], np.sort(scores_N[~labels_N])
    if not len(labelled) or not len(others):
        return math.nan
    below = np.searchsorted(others, labelled, side="left")
    up_to = np.searchsorted(others, labelled, side="right")
    return float((below + up_to).mean() / 2 / len(others))


def mean_error(told_N: Floats, found_N: Floats) -> float:
    """Returns the mean absolute error."""
    return float(np.abs(told_N - found_N).mean())
