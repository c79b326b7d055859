"""The schedule of a placement's own numbers: its values at both ends, its shape, and what it
refuses.
"""

import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from normscope.optim import AdaptiveConfig, UpdatesOf, adaptive_value

numbers = st.floats(-10, 10)
configs = st.builds(
    AdaptiveConfig,
    start=numbers,
    end=numbers,
    over=st.integers(1, 10_000),
    shape=st.sampled_from(["linear", "cosine"]),
)


def test_a_straight_line_by_hand():
    schedule = AdaptiveConfig(start=0.0, end=1.0, over=4)
    assert [adaptive_value(schedule, update) for update in range(7)] == [
        0.0,
        0.25,
        0.5,
        0.75,
        1.0,
        1.0,
        1.0,
    ]


def test_half_a_cosine_by_hand():
    schedule = AdaptiveConfig(start=2.0, end=4.0, over=4, shape="cosine")
    expected = [2.0, 3 - math.sqrt(0.5), 3.0, 3 + math.sqrt(0.5), 4.0, 4.0]
    assert [adaptive_value(schedule, update) for update in range(6)] == pytest.approx(
        expected, rel=1e-15
    )


@given(configs)
def test_both_ends_are_exact_and_it_stays_at_the_end(schedule):
    assert adaptive_value(schedule, 0) == schedule.start
    for later in (0, 1, 1000):
        assert adaptive_value(schedule, schedule.over + later) == schedule.end


@given(configs, st.integers(0, 12_000))
def test_it_moves_one_way_between_its_ends(schedule, update):
    low, high = sorted((schedule.start, schedule.end))
    now, then = adaptive_value(schedule, update), adaptive_value(schedule, update + 1)
    slack = 1e-14 * max(abs(low), abs(high))
    assert low - slack <= now <= high + slack
    assert (then - now) * (schedule.end - schedule.start) >= -slack * abs(
        schedule.end - schedule.start
    )


def test_epochs_become_updates():
    schedule = AdaptiveConfig(over="2 epochs").in_updates(UpdatesOf(Fraction(7, 2)))
    assert schedule == AdaptiveConfig(over=7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"over": 0},
            'a duration is a positive number of updates or epochs, such as 600 or "8 epochs", got '
            "0",
        ),
        ({"over": "soon"}, "got 'soon'"),
        ({"start": math.nan}, "start must be a finite number, got nan"),
        ({"end": math.inf}, "end must be a finite number, got inf"),
    ],
)
def test_what_it_refuses(changes, message):
    with pytest.raises(ValueError) as caught:
        AdaptiveConfig(**changes)
    assert message in str(caught.value)


def test_updates_are_counted_from_1():
    with pytest.raises(
        ValueError, match="updates are counted from 1, and 0 is before the first, got -1"
    ):
        adaptive_value(AdaptiveConfig(), -1)
