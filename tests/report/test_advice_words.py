"""Advice in words: what stands in the headline, in which rows, and what is said where nothing is
known.
"""

import shlex
from dataclasses import replace

import pytest

from normscope.cli.compare import numbers
from normscope.doctor.report.advice_words import (
    advice_rows,
    rate_headline,
    rate_step,
    speaks_against,
    surer,
)
from report.diagnoses import advice, unknown_advice


def rows_of(found):
    return {row.term["name"]: (row.value, row.meaning) for row in advice_rows(found)}


def test_the_rows_of_known_rates():
    assert rows_of(advice()) == {
        "usual learning rate": (
            "4.1e-4",
            "1.4e-4 to 1.2e-3, the best with 128k tokens a batch",
        ),
        "rate of recipes": ("2e-4", "what people train such a model with: a habit"),
        "your learning rate": ("3e-3", "above the usual range"),
        "warm-up": (
            "1 % of the updates",
            "the median of 3 sources with 0.2 % to 5 %; how short it may be is not known",
        ),
    }


def test_where_no_batch_is_told_three_have_a_rate_each():
    rows = rows_of(advice(batch_tokens=None))
    assert rows["usual learning rate"] == (
        "2e-4 to 8.2e-4",
        "2e-4 with 32k, 4.1e-4 with 128k, 8.2e-4 with 512k tokens a batch; name yours by "
        "--batch-tokens",
    )


def test_what_is_unknown_is_called_so_with_what_finds_out():
    found = unknown_advice()
    rows = rows_of(found)
    assert rows["usual learning rate"] == ("unknown", found.unknown)
    assert rows["warm-up"] == ("not known", "no recipe that we read tells it for such a model")
    assert rows["your learning rate"] == ("3e-4", "unknown: there is no range to compare it with")
    assert rate_headline(found) == "whether your learning rate 3e-4 is good is unknown"
    command = "`normscope compare m.py:f --placements own --optimizers sgd --peak-lr around:3e-4`"
    assert rate_step(found, "m.py:f") == f"compare learning rates first: {command}"
    assert surer(found, "m.py:f") == (
        "train with half of your rate, with it and with twice it, and choose after 70 % of the "
        f"updates: {command}"
    )
    assert not speaks_against(found)
    assert "--peak-lr LOW:HIGH:7" in surer(replace(found, wanted_rate=None, wanted_place=None))


def test_what_makes_a_rate_surer_are_three_rates_that_compare_takes():
    said = surer(advice(best=0.02), "my.py:build")
    words = shlex.split(said.split("`")[1])
    assert words[:3] == ["normscope", "compare", "my.py:build"]
    assert numbers(words[words.index("--peak-lr") + 1], float, "peak-lr") == [0.01, 0.02, 0.04]
    assert words[words.index("--optimizers") + 1] == "adamw"
    # Of a model in no file that `compare` takes, the options alone.
    with_options = "`normscope compare` with `--optimizers adamw --peak-lr around:0.02`"
    assert surer(advice(best=0.02)).endswith(f"70 % of the updates: {with_options}")


@pytest.mark.parametrize(
    ("found", "headline", "against"),
    [
        # 1.23e-3 is the end of the range; three times further nobody should begin.
        (advice(wanted=3.6e-3), "your learning rate 3.6e-3 is above the usual range", False),
        (advice(wanted=3.8e-3), "your learning rate 3.8e-3 is above the usual range", True),
        (advice(wanted=5e-4), "your learning rate 5e-4 is in the usual range", False),
        (advice(wanted=1e-5), "your learning rate 1e-5 is below the usual range", False),
        (advice(wanted=None), "usual learning rate 4.1e-4", False),
        (
            replace(advice(wanted=5e-3), wanted_warmup_updates=100),
            "your learning rate 5e-3 is above the usual range; whether your warm-up of 100 updates "
            "carries it is not known",
            False,
        ),
        (
            replace(unknown_advice(), wanted_rate=None, wanted_place=None),
            "usual learning rate unknown",
            False,
        ),
        (None, None, False),
    ],
)
def test_the_headline_is_about_your_rate_where_there_is_one(found, headline, against):
    assert speaks_against(found) is against
    if found is not None:
        assert rate_headline(found) == headline
