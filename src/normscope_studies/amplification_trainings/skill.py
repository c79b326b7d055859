"""Measures how well trainings are foretold, and by how much one way does better than another.

Trainings of one placement are alike: intervals are over placements, which are resampled as wholes.
"""

# N = trainings

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.estimates import Floats, bootstrap
from .foretelling import (
    WAYS,
    EndedTraining,
    Foretold,
    area_under_curve,
    held_out,
    log_loss,
    mean_error,
)

LEFT_OUT: Mapping[str, Callable[[EndedTraining], object]] = MappingProxyType(
    {
        "placements left out": lambda one: one.placement,
        "depths left out": lambda one: one.blocks,
    }
)
"""The part of the trainings that the fits have not seen which are asked about it, by its name."""


class SkillMeasure(NamedTuple):
    """Measures how well a way foretells."""

    told: str
    unit: str
    of: Callable[[Foretold, "ForetoldTrainings", NDArray[np.int64]], float]
    """The measure of the trainings with these numbers."""
    more_is_better: bool


LOSS = "log loss"
AREA = "area"
ERROR = "error"
MEASURES: Mapping[str, SkillMeasure] = MappingProxyType(
    {
        LOSS: SkillMeasure(
            "what it costs to foretell which trainings fail, by logarithms",
            "nats a training",
            lambda told, found, rows: log_loss(told.log_odds[rows], found.failed_N[rows]),
            more_is_better=False,
        ),
        AREA: SkillMeasure(
            "the area under the ROC curve, of trainings that fail",
            "of 1",
            lambda told, found, rows: area_under_curve(told.log_odds[rows], found.failed_N[rows]),
            more_is_better=True,
        ),
        ERROR: SkillMeasure(
            "the mean error of the loss at the end",
            "nats",
            lambda told, found, rows: mean_error(told.nats[rows], found.nats_N[rows]),
            more_is_better=False,
        ),
    }
)


class SkillGain(NamedTuple):
    """Says by how much a way does better than another, with the ends of its 95 % interval, which
    are NaN where nothing can be said.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetoldTrainings:
    """Trainings that are over, and what each way foretold of them with others left out."""

    trainings: Sequence[EndedTraining]
    foretold: Mapping[tuple[str, str], Foretold]
    """Answers by what was left out and by way."""

    @property
    def failed_N(self) -> NDArray[np.bool_]:
        return np.array([one.failed for one in self.trainings])

    @property
    def nats_N(self) -> Floats:
        return np.array([one.counted_nats for one in self.trainings])

    @property
    def rows_of(self) -> dict[str, NDArray[np.int64]]:
        """The trainings of each placement."""
        names = np.array([one.placement for one in self.trainings])
        return {str(name): np.flatnonzero(names == name) for name in dict.fromkeys(names)}

    def skill(self, left_out: str, way: str, measure: str) -> float:
        """Measures the skill over all trainings together."""
        every = np.arange(len(self.trainings))
        return MEASURES[measure].of(self.foretold[left_out, way], self, every)

    def gain(self, left_out: str, way: str, other: str, measure: str, *, fewest: int) -> SkillGain:
        """Positive where `way` does better than `other`, of the same trainings; over resamples of
        placements, of which fewer than `fewest` say nothing.
        """
        asked = MEASURES[measure]
        pair = [self.foretold[left_out, one] for one in (way, other)]
        sign = 1.0 if asked.more_is_better else -1.0

        def gained(some: Sequence[NDArray[np.int64]]) -> float:
            rows = np.concatenate(some)
            own, others = (asked.of(told, self, rows) for told in pair)
            return sign * (own - others)

        groups = list(self.rows_of.values())
        if len(groups) < fewest:
            return SkillGain(gained(groups), np.nan, np.nan)
        return SkillGain(*bootstrap(groups, gained))


def foretell(trainings: Sequence[EndedTraining], change: str) -> ForetoldTrainings | None:
    """Foretells the trainings whose change of that kind is known, by the ways that ask for it or
    for none; None where nothing can be left out of them.
    """
    known = [one for one in trainings if change in one.change]
    for group_of in LEFT_OUT.values():
        groups = {group_of(one) for one in known}
        if len(groups) < 2:
            return None
    ways = {name: way for name, way in WAYS.items() if way.change in ("", change)}
    foretold = {}
    for left_out, group_of in LEFT_OUT.items():
        for name, way in ways.items():
            foretold[left_out, name] = held_out(known, way, group_of)
    return ForetoldTrainings(trainings=known, foretold=foretold)


FoundByChange = Mapping[str, ForetoldTrainings | None]
"""The answers about the trainings whose change of that kind is known, by its name."""
