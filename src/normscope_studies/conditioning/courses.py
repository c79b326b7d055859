"""What was seen of each training: spreads over blocks, look by look, and where they leave a factor."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.evidence.estimates import Floats, estimate
from normscope.measure import Estimate
from normscope.placement import named


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One training, (K,) by look; after a loss that was not finite there are no looks."""

    gradient_spread: Floats
    """Largest over smallest gradient norm of a block; NaN where one is 0."""
    update_spread: Floats
    """The same of what the update adds."""
    isometry: Floats
    """Root-mean-square singular values of all blocks' Jacobians, (K, L); NaN for blocks without one."""
    peak: Floats
    """Largest singular value over the root mean square, the largest of all blocks."""
    final_nats: float
    """Of the validation text at the end; of a training that did not stay finite, the loss of its first batch."""
    finite: bool

    @property
    def off_isometry(self) -> Floats:
        """The factor by which the block farthest from it lies from 1, (K,); NaN without Jacobians."""
        found: Floats = np.exp(np.abs(np.log(self.isometry)).max(1))
        return found

    def log_worst(self, what: str) -> float:
        """Logarithm of the largest value over the looks; infinite where the training did not stay finite."""
        if not self.finite:
            return math.inf
        values = getattr(self, what)
        return float(np.log(np.nanmax(values))) if np.isfinite(values).any() else math.nan


def course_of(found: Mapping[str, Any]) -> Course:
    """From what `followed` gives."""
    finals, singular = found["valid_nats"], found["singular"]
    finite = bool(finals) and finals[-1] is not None and found["train_nats"][-1] is not None

    def of_blocks(name: str) -> Floats:
        return _floats([[None if one is None else one[name] for one in look] for look in singular])

    return Course(
        gradient_spread=_spread(found["gradient_norms"]),
        update_spread=_spread(found["update_norms"]),
        isometry=of_blocks("root_mean_square"),
        peak=of_blocks("peak").max(1),
        final_nats=finals[-1] if finite else found["train_nats"][0],
        finite=finite,
    )


def _spread(norms_KL: Sequence[Sequence[float | None]]) -> Floats:
    norms = _floats(norms_KL)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = norms.max(1) / norms.min(1)
    return np.where(np.isfinite(spread), spread, math.nan)


def _floats(rows: Sequence[Sequence[float | None]]) -> Floats:
    return np.asarray([[math.nan if value is None else value for value in row] for row in rows], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementCourses:
    """The trainings of one placement at one rate."""

    placement: str
    lr: float
    stated: float
    """What the theory states of the spread of its gradients at first; NaN where it states none."""
    looks: tuple[int, ...]
    courses: Sequence[Course]
    """One a seed."""

    @property
    def title(self) -> str:
        return named(self.placement).title

    @property
    def held_to(self) -> float:
        """The stated spread, or 1 where gradients are 0 at first and nothing is stated."""
        return 1.0 if math.isnan(self.stated) else self.stated

    @property
    def finals(self) -> list[float]:
        """Last losses in nats, one a seed."""
        return [course.final_nats for course in self.courses]

    @property
    def mean_nats(self) -> float:
        return math.fsum(self.finals) / len(self.finals)

    @property
    def finite(self) -> bool:
        """Whether every training stayed so."""
        return all(course.finite for course in self.courses)

    def worst(self, what: str) -> Estimate:
        """Logarithm of the largest value over the looks, over seeds; what: of a `Course`, (K,). Infinite where a
        training did not stay finite."""
        return estimate([course.log_worst(what) for course in self.courses])

    def worst_spread(self) -> Estimate:
        """Logarithm of the largest spread of gradients over what it is held to."""
        return estimate([course.log_worst("gradient_spread") - math.log(self.held_to) for course in self.courses])

    def mean(self, what: str) -> Floats:
        """Geometric mean over the seeds that stayed finite, (K,); NaN without any."""
        kept = [getattr(course, what) for course in self.courses if course.finite]
        return np.exp(np.log(kept).mean(0)) if kept else np.full(len(self.looks), math.nan)

    def left(self, limit: float) -> int | None:
        """The first look at which the mean spread of gradients lies above `limit` times what it is held to."""
        places = np.flatnonzero(self._outside(limit))
        return self.looks[int(places[0])] if len(places) else None

    def back(self, limit: float) -> int | None:
        """The look from which on it lies below again; None where it never left, or never came back."""
        outside = self._outside(limit)
        if not outside.any() or outside[-1]:
            return None
        return self.looks[int(np.flatnonzero(outside)[-1]) + 1]

    def _outside(self, limit: float) -> Any:
        return self.mean("gradient_spread") > limit * self.held_to
