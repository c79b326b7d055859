"""Advice in words: what stands in the headline, in which rows, and what is said where nothing is known."""

from dataclasses import replace

import pytest

from normscope.doctor.report.advice_words import advice_rows, good_rates, rate_headline, speaks_against
from normscope.doctor.result import RateRange
from report.diagnoses import advice, probed_advice, unknown_advice


def rows_of(found):
    return {row.term.name: (row.value, row.meaning) for row in advice_rows(found)}


def test_the_rows_of_a_probe():
    # 3.2 · 4.1e-4 = 1.3e-3, so 3e-3 is stuck with a chance of 1 / (1 + 0.437³)
    assert rows_of(probed_advice()) == {
        "best learning rate": (
            "4.1e-4",
            "90 % range 1.9e-4 to 8.8e-4; for 150 updates, no warm-up",
        ),
        "good learning rates": ("1.4e-4 to 8.2e-4", "expected within 0.1 nats per token of the best"),
        "your learning rate": ("3e-3", "above the good range; 92 % chance of getting stuck"),
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


def test_what_is_unknown_is_called_so_with_the_distance():
    found = unknown_advice()
    rows = rows_of(found)
    assert rows.keys() == {"best learning rate", "your learning rate", "warm-up"}
    assert rows["warm-up"] == (
        "not tested",
        "--probe 200 tests it, and finds the best rate",
    )
    assert rows_of(advice(wanted=None))["warm-up"][1] == "--probe 200 tests it"
    assert rows["best learning rate"] == (
        "unknown",
        "The tokens' outputs spread six times as far as those of any model that the rule was fitted to. "
        "Its distance from the models that the rule was fitted to is 3.2; the rule answers up to 1.8.",
    )
    assert rows["your learning rate"] == ("3e-4", "unknown: there is no range to compare it with")
    assert rate_headline(found) == "whether your learning rate 3e-4 is good is unknown"
    assert not speaks_against(found)


@pytest.mark.parametrize(
    ("found", "headline", "against"),
    [
        (advice(), "your learning rate 3e-3 is above the good range: 92 % chance of getting stuck", True),
        (advice(wanted=5e-4), "your learning rate 5e-4 is in the good range", False),
        (advice(wanted=1e-5), "your learning rate 1e-5 is below the good range", False),
        (advice(wanted=None), "best learning rate 4.1e-4", False),
        (
            replace(advice(wanted=9e-4), wanted_place="undecided"),
            "whether your learning rate 9e-4 is in the good range is undecided",
            False,
        ),
        (
            replace(advice(wanted=5e-4), stuck_chance=0.7),
            "your learning rate 5e-4 is in the good range: 70 % chance of getting stuck",
            True,
        ),
        (
            probed_advice(),
            "your learning rate 3e-3 is above the good range, but trains with a warm-up of 80 updates",
            True,
        ),
        (replace(unknown_advice(), wanted_rate=None, wanted_place=None), "best learning rate unknown", False),
        (None, None, False),
    ],
)
def test_the_headline_is_about_your_rate_where_there_is_one(found, headline, against):
    assert speaks_against(found) is against
    if found is not None:
        assert rate_headline(found) == headline


def test_good_rates_end_where_getting_stuck_becomes_likely():
    whole = advice()
    assert good_rates(whole) == whole.good_range
    assert good_rates(replace(whole, stuck_rate=5e-4)) == RateRange(low=whole.good_range.low, high=5e-4)
    assert good_rates(replace(whole, stuck_rate=1e-6)) is None
    assert good_rates(replace(whole, good_range=None)) is None
    assert good_rates(replace(whole, stuck_rate=None)) == whole.good_range
