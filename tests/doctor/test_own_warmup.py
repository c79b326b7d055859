"""A rate that is too high without warm-up is judged together with the warm-up that its training has."""

from dataclasses import replace

import pytest

from doctor.bugs import both
from doctor.wired import patient, post
from normscope.doctor.lint.checks.optimizer import rate_out_of_range
from normscope.doctor.report.advice_words import rate_headline, speaks_against
from normscope.doctor.result import ShortTraining, WarmupAdvice
from report.diagnoses import advice

HIGH = 0.3


def tried(*lengths: int, shortest: int | None) -> WarmupAdvice:
    """Warm-ups of these lengths, of which the longest carries the rate where `shortest` names it."""
    trainings = [
        ShortTraining(
            rate=HIGH,
            updates=length + 4,
            warmup_updates=length,
            losses=(2.0,),
            spread=1.0,
            outcome="kept" if length == shortest else "stuck",
        )
        for length in lengths
    ]
    named = None if shortest is None else 2 * shortest
    return WarmupAdvice(tried=tuple(trainings), shortest_updates=shortest, named_updates=named)


PROBED = tried(0, 8, 16, shortest=16)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("own", "warmup", "state", "said"),
    [
        (None, None, "none", ["warning"]),
        (0, None, "none", ["warning"]),
        (100, None, "untested", ["info"]),
        (32, PROBED, "carries", []),
        (16, PROBED, "untested", ["info"]),  # shorter than what is advised
        (8, PROBED, "too short", ["warning"]),
        (12, PROBED, "untested", ["info"]),
        (None, PROBED, "none", []),
        (100, tried(0, 8, shortest=None), "untested", ["info"]),
        (8, tried(0, 8, shortest=None), "too short", ["warning"]),
    ],
)
def test_the_warm_up_of_the_training_is_judged(own, warmup, state, said):
    found = replace(advice(wanted=HIGH), wanted_warmup_updates=own, warmup=warmup)
    assert found.wanted_place == "above"
    assert found.own_warmup == state
    findings = list(rate_out_of_range.check(replace(patient(both(post)()), advice=found)))
    assert [one.severity for one in findings] == said
    assert speaks_against(found) == (state in ("none", "too short"))
    headline = rate_headline(found)
    assert ("was not tested" in headline) == (state == "untested")
    assert ("trains with yours of 32 updates" in headline) == (state == "carries")


def test_a_warm_up_that_is_too_short_is_told_what_suffices():
    found = replace(advice(wanted=HIGH), wanted_warmup_updates=8, warmup=PROBED)
    (finding,) = rate_out_of_range.check(replace(patient(both(post)()), advice=found))
    assert "your warm-up of 8 updates does not carry it" in finding.message
    assert "or a warm-up of 32 updates" in finding.fix
