"""A peak rate that is far from those that train the model well."""

from collections.abc import Iterator

from ....report.words import counted, learning_rate, probability
from ...result import Advice, Finding, Severity
from ..needs import a_judged_rate
from ..rules import Patient, Rule

_LIKELY = 0.5


def rate_out_of_range(patient: Patient) -> Iterator[Finding]:
    """The rate that the user plans with, outside what advice says is about as good as the best."""
    advice = patient.advice
    if advice is None or advice.wanted_rate is None or advice.good_range is None or advice.best_rate is None:
        return
    likely = (advice.stuck_chance or 0.0) >= _LIKELY and advice.wanted_place != "in range"
    if advice.wanted_place == "below":
        yield _below(advice)
    elif advice.own_warmup != "carries" and (advice.wanted_place == "above" or likely):
        if advice.own_warmup == "untested":
            yield _untested(advice)
        elif advice.own_warmup == "too short" or not (advice.warmup and advice.warmup.named_updates):
            yield _above(advice, likely=likely)


def _below(advice: Advice) -> Finding:
    return Finding(
        id="rate-out-of-range",
        severity=Severity.INFO,
        where="",
        message=f"{_yours(advice)} lies below {_range(advice)}",
        fix=f"nothing, where the training is much longer; else take a rate near {_best(advice)}",
    )


def _untested(advice: Advice) -> Finding:
    """With a warm-up of its own a high rate is not certain to be wrong: the range is of trainings without one."""
    own = counted(advice.wanted_warmup_updates or 0, "update")
    return Finding(
        id="rate-out-of-range",
        severity=Severity.INFO,
        where="",
        message=f"{_yours(advice)} lies above {_range(advice)}, which is of trainings without warm-up; whether yours "
        f"of {own} carries it was not tested",
        fix="try it with --probe, or keep an eye on the first updates after the warm-up",
    )


def _above(advice: Advice, *, likely: bool) -> Finding:
    chance = probability(advice.stuck_chance or 0.0)
    stuck = f", and is stuck with a chance of {chance} without warm-up" if likely else ""
    fix = "; no warm-up that was tried carries yours"
    if advice.warmup is None:
        fix = ", or test warm-ups for yours with --probe"
    elif advice.warmup.named_updates:
        own = counted(advice.wanted_warmup_updates or 0, "update")
        needed = counted(advice.warmup.named_updates, "update")
        stuck += f"; your warm-up of {own} does not carry it"
        fix = f", or a warm-up of {needed}"
    return Finding(
        id="rate-out-of-range",
        severity=Severity.WARNING,
        where="",
        message=f"{_yours(advice)} lies above {_range(advice)}{stuck}",
        fix=f"take a rate near {_best(advice)}{fix}",
    )


def _yours(advice: Advice) -> str:
    return f"your rate {learning_rate(advice.wanted_rate, 2)}"


def _best(advice: Advice) -> str:
    return learning_rate(advice.best_rate, 2)


def _range(advice: Advice) -> str:
    good = advice.good_range
    ends = "" if good is None else f", {learning_rate(good.low, 2)} to {learning_rate(good.high, 2)}"
    return f"those that are about as good as the best for {advice.horizon_updates} updates{ends}"


PLACE = 130
RULES: tuple[Rule, ...] = (
    Rule(
        id="rate-out-of-range",
        severity=Severity.WARNING,
        title="a learning rate outside the good range",
        explanation="Too high a rate leaves a model stuck at the frequencies of tokens or makes its loss explode; too "
        "low a one wastes updates.",
        reference="`normscope study advice`, which the range is fitted by",
        check=rate_out_of_range,
        needs=(a_judged_rate,),
    ),
)
