"""Advice in words: what stands in the headline, in which rows, and what is said where nothing is known."""

from dataclasses import replace

import pytest

from normscope.doctor.report.advice_words import advice_facts, advice_rows, rate_headline, rate_step, speaks_against
from normscope.doctor.result import WarmupAdvice
from report.diagnoses import advice, probed_advice, unknown_advice


def rows_of(found):
    return {row.term["name"]: (row.value, row.meaning) for row in advice_rows(found)}


def test_the_rows_of_known_rates():
    assert rows_of(advice()) == {
        "usual learning rate": (
            "4.1e-4",
            "1.4e-4 to 1.2e-3, by 43 recipes and 4 ladders; --probe 200 reads it from your model",
        ),
        "your learning rate": ("3e-3", "above the usual range"),
        "warm-up": (
            "1 % of the updates",
            "the median of 3 recipes with 0.2 % to 5 %; how short a one suffices is not known",
        ),
    }
    assert ("Known rates", advice().basis) in advice_facts(advice())


def test_the_rows_of_a_probe():
    assert rows_of(probed_advice()) == {
        "best learning rate": (
            "4.1e-4",
            "90 % range 1.9e-4 to 8.8e-4; for 150 updates, no warm-up",
        ),
        "good learning rates": ("1.4e-4 to 8.2e-4", "expected within 0.1 of the best's loss"),
        "your learning rate": ("3e-3", "above the good range; stuck in 12 updates at it"),
        "warm-up": (
            "80 updates",
            "4 times the shortest of 0, 10, 20 updates that carried your rate in a short training",
        ),
    }


def test_warm_ups_that_do_not_help():
    assert rows_of(probed_advice(shortest=None))["warm-up"] == (
        "none suffices",
        "not the longest of 0, 10, 20 updates carries your rate: take a lower one",
    )


def test_no_warm_up_fails_that_was_not_tried():
    tried = replace(
        probed_advice(shortest=None), warmup=WarmupAdvice(tried=(), shortest_updates=None, named_updates=None)
    )
    assert rows_of(tried)["warm-up"][0] == "not tested"


def test_what_is_unknown_is_called_so_with_what_finds_out():
    found = unknown_advice()
    rows = rows_of(found)
    assert rows["usual learning rate"] == ("unknown", f"{found.unknown}: --probe 200 reads one from your model")
    assert rows["warm-up"] == ("not known", "how short a one suffices is not known")
    assert rows["your learning rate"] == ("3e-4", "unknown: there is no range to compare it with")
    assert rate_headline(found) == "whether your learning rate 3e-4 is good is unknown"
    assert rate_step(found, "m.py:f") == "try your learning rate: normscope doctor m.py:f --rate 3e-4 --probe 200"
    assert not speaks_against(found)


@pytest.mark.parametrize(
    ("found", "headline", "against"),
    [
        # 1.23e-3 is the range's end, and no published rate lies more than four times further.
        (advice(wanted=4.8e-3), "your learning rate 4.8e-3 is above the usual range", False),
        (advice(wanted=5e-3), "your learning rate 5e-3 is above the usual range", True),
        (advice(wanted=5e-4), "your learning rate 5e-4 is in the usual range", False),
        (advice(wanted=1e-5), "your learning rate 1e-5 is below the usual range", False),
        (advice(wanted=None), "usual learning rate 4.1e-4", False),
        (
            replace(probed_advice(), wanted_rate=9e-4, wanted_place="undecided", wanted_training=None, warmup=None),
            "whether your learning rate 9e-4 is in the good range is undecided",
            False,
        ),
        (
            replace(probed_advice(), warmup=None),
            "your learning rate 3e-3 is above the good range: stuck in 12 updates at it",
            True,
        ),
        (
            replace(probed_advice(), wanted_place="in range", warmup=None),
            "your learning rate 3e-3 is in the good range: stuck in 12 updates at it",
            True,
        ),
        (
            probed_advice(),
            "your learning rate 3e-3 is above the good range, but trains with a warm-up of 80 updates",
            True,
        ),
        (replace(unknown_advice(), wanted_rate=None, wanted_place=None), "usual learning rate unknown", False),
        (None, None, False),
    ],
)
def test_the_headline_is_about_your_rate_where_there_is_one(found, headline, against):
    assert speaks_against(found) is against
    if found is not None:
        assert rate_headline(found) == headline
