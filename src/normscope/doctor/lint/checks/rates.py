"""A peak rate that is far from those that train the model well."""

from collections.abc import Iterator

from ....report.doctor.contents import Finding, Severity
from ....report.numbers import learning_rate, probability
from ..needs import a_judged_rate
from ..rules import Patient, Rule

_LIKELY = 0.5


def rate_out_of_range(patient: Patient) -> Iterator[Finding]:
    """The rate that the user plans with, outside what advice says is about as good as the best."""
    advice = patient.advice
    if advice is None or advice.wanted_rate is None or advice.good_range is None or advice.best_rate is None:
        return
    carried = advice.warmup is not None and advice.warmup.named_updates
    likely = (advice.stuck_chance or 0.0) >= _LIKELY and advice.wanted_place != "in range"
    if carried or (advice.wanted_place not in ("above", "below") and not likely):
        return
    wanted, best, low, high = (
        learning_rate(rate, 2)
        for rate in (advice.wanted_rate, advice.best_rate, advice.good_range.low, advice.good_range.high)
    )
    range_words = f"those that are about as good as the best for {advice.horizon_updates} updates, {low} to {high}"
    if advice.wanted_place == "below":
        yield Finding(
            id="rate-out-of-range",
            severity=Severity.INFO,
            where="",
            message=f"your rate {wanted} lies below {range_words}",
            fix=f"nothing, where the training is much longer; else take a rate near {best}",
        )
        return
    stuck = (
        f", and is stuck with a chance of {probability(advice.stuck_chance or 0.0)} without warm-up" if likely else ""
    )
    yield Finding(
        id="rate-out-of-range",
        severity=Severity.WARNING,
        where="",
        message=f"your rate {wanted} lies above {range_words}{stuck}",
        fix=f"take a rate near {best}"
        + (
            ", or test warm-ups for yours with --probe"
            if advice.warmup is None
            else "; no warm-up that was tried carries yours"
        ),
    )


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
