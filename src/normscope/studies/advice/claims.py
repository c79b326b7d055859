"""What the study of advice says: whether the chance separates, whether the safe rate trains, and how near it comes."""

from collections.abc import Sequence

import numpy as np

from ...report.numbers import interval, number, percentage
from ...report.study.contents import Claim
from ..protocol.evidence import proportion
from ..protocol.judging import Answer, all_hold, answers, between, judged
from .fit import CONFIDENCE
from .judge import FACTOR, Judged, separation, separation_interval

AREA = 0.95
"""Under the receiver operating characteristic: what counts as telling diverged from learned."""


def claims(evaluation: Sequence[Judged]) -> list[Claim]:
    """All claims of the study."""
    return [_separates(evaluation), _trains(evaluation), _is_near(evaluation)]


def with_a_rate(evaluation: Sequence[Judged]) -> list[Judged]:
    """Those that learned at some rate: of the others nobody knows what is safe."""
    return [one for one in evaluation if one.largest_rate is not None]


def _separates(evaluation: Sequence[Judged]) -> Claim:
    area, bad, good = separation(evaluation)
    found = separation_interval(evaluation)
    trainings = sum(len(one.known.outcomes) for one in evaluation)
    return judged(
        name="The probability separates diverged from learned",
        statement="The predicted probability to diverge separates them with an area under the ROC curve of at least "
        f"{AREA:g}.",
        source="NormScope",
        found=f"{interval(area, float(found.half_width))}, over {bad} trainings that diverged and {good} that learned, "
        f"of {trainings}; the interval is over cases",
        holds={"all": between(found, least=AREA)},
    )


def _trains(evaluation: Sequence[Judged]) -> Claim:
    decided = with_a_rate(evaluation)
    count = sum(one.safe_trained for one in decided)
    return judged(
        name="The safe rate trains",
        statement=f"At the rate called safe, at least {percentage(CONFIDENCE, 0)} of cases learn without warm-up.",
        source="NormScope",
        found=f"{_share(count, len(decided))}{_without(evaluation)}",
        holds={"all": _often(count, len(decided))},
    )


def _is_near(evaluation: Sequence[Judged]) -> Claim:
    decided = with_a_rate(evaluation)
    near = sum(one.safe_trained and one.within_factor for one in decided)
    times = [one.times_below for one in evaluation if one.times_below is not None]
    apart = (
        f"; the largest rate that learned is {number(float(np.median(times)), 2)} times the safe one in the median, "
        f"{max(times):.3g} times at most"
        if times
        else ""
    )
    return judged(
        name="The safe rate is not too low",
        statement=f"In at least {percentage(CONFIDENCE, 0)} of cases it learns and lies within a factor of {FACTOR:g} "
        "of the largest rate that did.",
        source="NormScope",
        found=f"{_share(near, len(decided))}{apart}",
        holds={"all": _often(near, len(decided))},
    )


def _often(count: int, total: int) -> Answer:
    return all_hold(answers(*proportion(count, total), CONFIDENCE, 1.0))


def _share(count: int, total: int) -> str:
    low, high = proportion(count, total)
    return (
        f"{count} of {total} ({percentage(count / total if total else None)}; 95 % interval {percentage(low)} to "
        f"{percentage(high)})"
    )


def _without(evaluation: Sequence[Judged]) -> str:
    count = len(evaluation) - len(with_a_rate(evaluation))
    return f"; {count} more learned at no rate that was tried, in so few updates" if count else ""
