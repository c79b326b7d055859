"""A scheduler whose first rates end a training, and a warm-up that is not the one that was told."""

from collections.abc import Iterator
from itertools import pairwise

from ....optim.courses import RateCourse
from ....report.words import counted, learning_rate
from ...result import Severity
from ..patient import Patient, a_course, two_warmups
from ..rule import Fault, rule

_JUMP = 3.0
"""Times by which a rate rises in one update, where a ramp rises by its share."""
_UNLIKE = 2.0
"""Times by which two lengths of a warm-up differ that were to be one."""
_SHORT = 10
"""Updates by which two lengths may differ."""


def _course(patient: Patient) -> RateCourse:
    if patient.course is None:
        raise ValueError("no scheduler was given")
    return patient.course


@rule("schedule-fails", a_course)
def schedule_fails(patient: Patient) -> Iterator[Fault]:
    """Rates that are 0 throughout, below 0, or that jump."""
    course = _course(patient)
    updates = counted(len(course.rates), "update")
    if course.peak <= 0:
        yield _fault(
            f"{course.kind} gives the rate 0 for each of the first {updates}: nothing is learnt",
            "look at its factor: a warm-up from 0 that is never stepped, or whole numbers divided",
            Severity.ERROR,
        )
        return
    if (below := course.negative_from) is not None:
        yield _fault(
            f"{course.kind} gives a rate below 0 from update {below} on: such an update climbs the "
            "loss",
            f"nothing, where the training ends before update {below}; else end the decay at 0, as "
            "with max(0.0, …)",
            Severity.INFO if below > course.warmup_updates + _SHORT else Severity.ERROR,
        )
    still = next(n for n, rate in enumerate(course.rates) if rate > 0)
    if still > _SHORT:
        yield _fault(
            f"{course.kind} gives the rate 0 for each of the first {counted(still, 'update')}, and "
            f"then {learning_rate(course.rates[still], 2)}",
            "let it rise from the first update on; a whole-number division (//) makes steps of it",
            Severity.WARNING,
        )
    yield from _of_other_units(course, patient.base_rate)
    if (jump := _jump(course)) is not None:
        before, after = course.rates[jump - 1], course.rates[jump]
        yield _fault(
            f"{course.kind} lets the rate jump from {learning_rate(before, 2)} to "
            f"{learning_rate(after, 2)} at update {jump + 1}, after a warm-up to the lower one",
            "let the warm-up end at the rate that follows it",
            Severity.WARNING,
        )


_OFTEN = 8
"""Times that a rate comes back from nothing; a training with a few long waves is meant."""
_NOTHING, _WHOLE = 1e-3, 0.9
"""The shares of the peak up to which a rate is nothing, and from which on it is whole."""
_FAR_BELOW = 0.02
"""The share of the optimiser's own rate, which a schedule multiplies by 1 at its peak, below which
the peak is far too low.
"""
_LARGEST_RATE = 0.1
"""The largest rate of an optimiser: above, it is no rate; where the schedule makes it all, it is
1.
"""


def _of_other_units(course: RateCourse, own: float | None) -> Iterator[Fault]:
    """A schedule that counts epochs and is stepped once an update, or whose factor is a rate."""
    if (times := _returns(course)) >= _OFTEN:
        updates = len(course.rates) // times
        yield _fault(
            f"{course.kind} lets the rate fall to 0 and climb back to its peak {times} times in "
            f"{counted(len(course.rates), 'update')}, once every {updates}",
            "count the schedule's length in updates, where it is stepped once an update",
            Severity.WARNING,
        )
    is_inside = course.warmup_updates < len(course.rates) // 2
    if own and own <= _LARGEST_RATE and is_inside and course.peak < _FAR_BELOW * own:
        yield _fault(
            f"{course.kind} never gives more than {learning_rate(course.peak, 2)}, where the "
            f"optimiser was built with {learning_rate(own, 2)}: what it multiplies that with is at "
            f"most {course.peak / own:.2g}",
            "return a factor that is 1 at the peak: LambdaLR multiplies the optimiser's rate with "
            "it",
            Severity.WARNING,
        )


def _returns(course: RateCourse) -> int:
    """Counts how often the rate climbs from nothing to its peak again; 0 for schedules that are to
    restart.
    """
    if "Restart" in course.kind or "Cycl" in course.kind:
        return 0
    times, is_low = 0, False
    for rate in course.rates[course.warmup_updates :]:
        is_low = is_low or rate <= _NOTHING * course.peak
        if is_low and rate >= _WHOLE * course.peak:
            times, is_low = times + 1, False
    return times


def _jump(course: RateCourse) -> int | None:
    """Returns the first update, counted from 0, before which the rate rises at once by far more
    than a ramp's share; None of schedules that are to restart.
    """
    if "Restart" in course.kind or "Cycl" in course.kind:
        return None
    for at, (before, after) in enumerate(pairwise(course.rates), 1):
        # From 0, or in the first few updates, a ramp rises by as much.
        if at > _SHORT and before > 0 and after > _JUMP * before and after > course.peak / _JUMP:
            return at
    return None


def _fault(message: str, fix: str, severity: Severity) -> Fault:
    return Fault(where="", in_code=False, message=message, fix=fix, severity=severity)


def _differ(some: int, others: int) -> bool:
    low, high = sorted((some, others))
    return high - low > _SHORT and high > _UNLIKE * low


@rule("warmup-unlike-told", two_warmups)
def warmup_unlike_told(patient: Patient) -> Iterator[Fault]:
    """A warm-up of the scheduler, or of the log, that is not as long as the one that was told."""
    told = patient.told_warmup_updates
    course, logged = patient.course, patient.logged_warmup_updates
    if told is not None and told == logged:
        return
    if told is None and course is not None and course.peak > 0:
        told = course.warmup_updates
        course = None
    if told is None:
        return
    if course is not None and course.peak > 0 and _differ(told, course.warmup_updates):
        yield _fault(
            f"a warm-up of {counted(told, 'update')} was told, and {course.kind} rises over "
            f"{counted(course.warmup_updates, 'update')}",
            "count both in updates; a scheduler that is stepped once an epoch counts epochs",
            Severity.WARNING,
        )
    if logged is not None and _differ(told, logged):
        yield _fault(
            f"a warm-up of {counted(told, 'update')} was configured, and the log's rate rises over "
            f"{counted(logged, 'update')}",
            "see that the scheduler is stepped once an update, after gradients were accumulated, "
            "and that its state is loaded on a resume",
            Severity.WARNING,
        )
