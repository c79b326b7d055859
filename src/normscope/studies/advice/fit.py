"""Fitting the doctor's constants to trainings, and how far they are off on a case that they were not fitted to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...doctor.advise.calibration import ADAM, Calibration, Facts
from ...errors import UserError
from ...optim import OPTIMIZERS
from .cases import TENTH, Case, rate_of
from .search import Outcome, diverged, learned

ROUNDS = 40
RIDGE = 0.05
"""Holds the constants of rarely seen optimisers near Adam's, and that of depth near 0."""
CONFIDENCE = 0.95
NEUTRAL = Calibration(
    collapse=0.0,
    depth=0.0,
    rise=0.0,
    optimizers={},
    deviation=1.0,
    margin=0.0,
    factor=1.0,
    warmup=0.0,
    warmup_slope=0.0,
)
GROUPS = {ADAM: ADAM} | {name: one.bears_as for name, one in OPTIMIZERS.items() if one.bears_as}
"""AdamW moves as Adam does; the others have a constant of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A case with what was seen of it and what became of its trainings, by step of the ladder of rates."""

    case: Case
    facts: Facts
    outcomes: Mapping[int, Outcome]

    @property
    def largest(self) -> int | None:
        """The largest step that learned; None where none did."""
        return max((step for step, outcome in self.outcomes.items() if learned(outcome)), default=None)

    @property
    def bounded(self) -> bool:
        """Whether a step above the largest was tried."""
        return self.largest is not None and max(self.outcomes) > self.largest

    @property
    def boundary(self) -> float:
        """log10 of what lies half-way between the largest step that learned and the next."""
        assert self.largest is not None
        return math.log10(rate_of(self.largest)) + 0.5 / TENTH

    def labels(self) -> dict[int, bool]:
        """Whether each step diverged; steps that neither learned nor did worse than a tenth of them are left out."""
        found = {}
        for step, outcome in self.outcomes.items():
            tenth = self.outcomes.get(step - TENTH)
            if learned(outcome):
                found[step] = False
            elif tenth is not None and diverged(outcome, tenth):
                found[step] = True
        return found


def fitted(known: Sequence[Known], warmups: Sequence[tuple[float, int]] = ()) -> Calibration:
    """Constants from cases with a boundary; deviation, margin and factor from leaving out one case at a time.

    warmups: decades of rate beyond the largest that trained, and the shortest warm-up that did, in updates.
    Raises UserError for fewer than two such cases.
    """
    usable = [one for one in known if one.bounded]
    if len(usable) < 2:
        raise UserError(
            f"{len(usable)} of {len(known)} cases have both a rate that learned and a larger one that did not, and "
            "constants need two; train longer (--set updates=300)"
        )
    constants = _constants(usable)
    held_out = [
        (one, _constants([other for other in usable if other is not one]).foreseen(one.facts)) for one in usable
    ]
    margin = max(0.0, _quantile([foreseen - one.boundary for one, foreseen in held_out]))
    slope, level = _line([x for x, _ in warmups], [math.log10(updates) for _, updates in warmups])
    return replace(
        constants,
        deviation=_deviation(held_out),
        margin=margin,
        factor=10 ** _quantile([abs(foreseen - margin - one.boundary) for one, foreseen in held_out]),
        warmup=level,
        warmup_slope=slope,
    )


def _quantile(values: Sequence[float]) -> float:
    """What `CONFIDENCE` of the values do not exceed."""
    return sorted(values)[math.ceil(CONFIDENCE * len(values)) - 1]


def _constants(known: Sequence[Known]) -> Calibration:
    """Least squares: each case belongs to the term that is the smaller one for it, until none changes."""
    optimizers = sorted({one.case.optimizer for one in known if one.case.optimizer not in GROUPS})
    names = ["collapse", "depth", "rise", *optimizers]
    boundaries = np.array([one.boundary for one in known])
    constants = replace(NEUTRAL, rise=-0.3, collapse=-0.6)
    for _ in range(ROUNDS):
        rows, offsets = [], []
        for one in known:
            collapses = _collapses(one.facts, constants)
            row = dict.fromkeys(names, 0.0)
            if collapses:
                assert one.facts.collapse is not None
                row["collapse"], row["depth"] = 1.0, math.log10(one.facts.sublayers / 20)
                offsets.append(one.facts.collapse)
            else:
                row["rise"] = 1.0
                offsets.append(one.facts.rise)
            if one.case.optimizer in optimizers:
                row[one.case.optimizer] = 1.0
            rows.append([row[name] for name in names])
        design = np.array(rows)
        penalty = np.diag([0.0 if name in ("collapse", "rise") else RIDGE for name in names])
        left = design.T @ design + penalty + 1e-9 * np.eye(len(names))
        found = dict(zip(names, np.linalg.solve(left, design.T @ (boundaries - np.array(offsets))), strict=True))
        fresh = replace(
            constants,
            collapse=float(found["collapse"]),
            depth=float(found["depth"]),
            rise=float(found["rise"]),
            optimizers={**dict.fromkeys(GROUPS, 0.0), **{name: float(found[name]) for name in optimizers}},
        )
        if fresh == constants:
            break
        constants = fresh
    return constants


def _collapses(facts: Facts, constants: Calibration) -> bool:
    """Whether losing the tokens comes before the explosion."""
    if facts.collapse is None:
        return False
    without = replace(facts, collapse=None)
    return constants.foreseen(facts) < constants.foreseen(without)


def _deviation(held_out: Sequence[tuple[Known, float]]) -> float:
    """The logistic's scale under which the trainings of left-out cases are likeliest."""
    runs = [
        (math.log10(rate_of(step)) - foreseen, bad) for one, foreseen in held_out for step, bad in one.labels().items()
    ]
    distances, bad = np.array([x for x, _ in runs]), np.array([y for _, y in runs])
    scales = 10 ** np.linspace(-2, 0.5, 251)
    scores = [float(np.logaddexp(0, np.where(bad, -distances, distances) / scale).sum()) for scale in scales]
    return float(scales[int(np.argmin(scores))])


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and level at 0 of a straight line; (0, 0) without points, slope 0 where all x are as good as one."""
    if not x:
        return 0.0, 0.0
    centred = np.array(x) - np.mean(x)
    spread = float(centred @ centred)
    slope = float(centred @ np.array(y)) / spread if spread > 1e-6 else 0.0
    return slope, float(np.mean(y)) - slope * float(np.mean(x))
