"""Schedules against closed forms, fairseq's own numbers and torch's scheduler; durations, good and
bad.
"""

import itertools
import json
import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import normscope
from normscope.optim import (
    ScheduleConfig,
    UpdatesOf,
    depends_on_horizon,
    factor,
    never_peaks,
    parse_duration,
    summed_factor,
)
from normscope.optim.schedules import Decay

CONTROLLED = {
    "constant": {},
    "linear": {"floor": 0.1},
    "inverse-sqrt": {"decay_from_updates": 30},
    "cosine": {"decay_from_updates": 10},
    "steps": {"decay_at": (40, 80)},
    "wsd": {"cooldown_share": 0.3, "floor": 0.05},
}


def factors(updates: int, horizon: int = 100, **schedule: object) -> list[float]:
    config = ScheduleConfig(**schedule)
    return [factor(config, update, horizon_updates=horizon) for update in range(1, updates + 1)]


class TestEnds:
    def test_wsd(self):
        found = factors(12, horizon=10, decay="wsd", cooldown_share=0.4)
        assert found[:7] == [1.0] * 7
        assert found[7:] == pytest.approx(
            [1 - 0.25**0.5, 1 - 0.5**0.5, 1 - 0.75**0.5, 0.0, 0.0], abs=1e-15
        )
        above = factors(11, horizon=10, decay="wsd", cooldown_share=1.0, floor=0.5)
        assert (above[0], above[10]) == (1.0, 0.5)

    def test_warmup(self):
        assert factors(6, warmup_updates=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
        assert factors(3, warmup_updates=1) == [1.0, 1.0, 1.0]
        assert factors(3, warmup_updates=0) == [1.0, 1.0, 1.0]

    def test_linear(self):
        assert factors(6, horizon=4, decay="linear") == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
        assert factors(6, horizon=6, decay="linear", decay_from_updates=2) == [
            1.0,
            1.0,
            1.0,
            0.75,
            0.5,
            0.25,
        ]
        assert factors(5, horizon=4, decay="linear", floor=0.2) == pytest.approx(
            [1.0, 0.8, 0.6, 0.4, 0.2], rel=1e-14
        )

    def test_cosine(self):
        found = factors(6, horizon=4, decay="cosine")
        assert found == pytest.approx(
            [1.0, 0.5 + 0.125**0.5, 0.5, 0.5 - 0.125**0.5, 0.0, 0.0], rel=1e-14, abs=1e-16
        )
        assert factors(12, horizon=8, decay="cosine", floor=0.3)[8:] == pytest.approx(
            [0.3] * 4, rel=1e-14
        )
        late = factors(9, horizon=8, decay="cosine", decay_from_updates=4)
        assert late == pytest.approx([1.0] * 4 + found[:5], rel=1e-14, abs=1e-16)
        above = factors(5, horizon=4, decay="cosine", floor=0.2)
        assert above == pytest.approx([0.2 + 0.8 * share for share in found[:5]], rel=1e-14)
        assert factors(2, horizon=1, decay="cosine") == pytest.approx([1.0, 0.0], abs=1e-16)

    def test_inverse_sqrt(self):
        assert factors(9, decay="inverse-sqrt", decay_from_updates=4)[3:] == [
            1.0,
            math.sqrt(4 / 5),
            math.sqrt(4 / 6),
            math.sqrt(4 / 7),
            math.sqrt(0.5),
            2 / 3,
        ]
        assert factors(4, decay="inverse-sqrt")[3] == 0.5

    def test_steps(self):
        found = factors(6, decay="steps", decay_at=(2, 4), decay_factor=0.5)
        assert found == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]

    def test_coupled_inverse_sqrt(self):
        assert factors(4, decay="coupled-inverse-sqrt", warmup_updates=1) == [
            1.0,
            0.5**0.5,
            (1 / 3) ** 0.5,
            0.5,
        ]
        assert factors(8, decay="coupled-inverse-sqrt", warmup_updates=2)[:2] == [0.5, 1.0]
        assert factors(8, decay="coupled-inverse-sqrt", warmup_updates=2)[7] == 0.5

    @pytest.mark.parametrize("decay", CONTROLLED)
    def test_a_run_of_one_update(self, decay):
        assert factors(1, horizon=1, decay=decay, **CONTROLLED[decay]) == [1.0]

    @pytest.mark.parametrize("update", [0, -1])
    def test_updates_are_counted_from_one(self, update):
        with pytest.raises(ValueError, match=f"counted from 1, got {update}"):
            factor(ScheduleConfig(), update, horizon_updates=10)


@pytest.mark.parametrize("warmup", [1, 500, 4000])
def test_coupled_equals_fairseq(shared, warmup):
    with np.load(shared / "fixtures/fairseq_inverse_sqrt.npz") as archive:
        theirs = archive[str(warmup)]
    config = ScheduleConfig(decay="coupled-inverse-sqrt", warmup_updates=warmup)
    ours = [5e-4 * factor(config, update, horizon_updates=6000) for update in range(1, 6001)]
    # Both in float64, with the factors multiplied in another order: a handful of roundings apart.
    np.testing.assert_allclose(ours, theirs, rtol=4 * 2**-52, atol=0)


@pytest.mark.parametrize("decay", CONTROLLED)
@given(warmup=st.integers(0, 150), update=st.integers(1, 120))
def test_controlled_decay_does_not_know_the_warmup(decay, warmup, update):
    with_warmup = ScheduleConfig(decay=decay, warmup_updates=warmup, **CONTROLLED[decay])
    without = ScheduleConfig(decay=decay, warmup_updates=0, **CONTROLLED[decay])
    one, other = (factor(config, update, horizon_updates=100) for config in (with_warmup, without))
    assert one == pytest.approx(
        other * (min(update, warmup) / warmup if warmup else 1.0), rel=1e-14, abs=0
    )


@pytest.mark.parametrize("decay", CONTROLLED)
def test_controlled_decay_never_rises_and_stays_a_share(decay):
    found = factors(130, decay=decay, **CONTROLLED[decay])
    assert found[0] == 1.0
    assert all(0 <= later <= earlier for earlier, later in itertools.pairwise(found))


class TestSum:
    @pytest.mark.parametrize("decay", CONTROLLED)
    def test_is_the_plain_sum(self, decay):
        config = ScheduleConfig(decay=decay, warmup_updates=7, **CONTROLLED[decay])
        plain = sum(factors(90, decay=decay, warmup_updates=7, **CONTROLLED[decay]))
        assert summed_factor(config, updates=90, horizon_updates=100) == pytest.approx(
            plain, rel=1e-13
        )

    @pytest.mark.parametrize(("warmup", "expected"), [(1, 255), (4000, 10_248)])
    def test_the_papers_arms_differ_forty_times(self, warmup, expected):
        """Sums computed elsewhere; and the closed form, ∫ sqrt(W / t) dt + W / 2."""
        config = ScheduleConfig(decay="coupled-inverse-sqrt", warmup_updates=warmup)
        found = summed_factor(config, updates=16_500, horizon_updates=16_500)
        assert found == pytest.approx(expected, rel=5e-3)
        integral = 2 * math.sqrt(warmup) * (math.sqrt(16_500) - math.sqrt(warmup)) + warmup / 2
        assert found == pytest.approx(integral, abs=1.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("decay", [*CONTROLLED, "coupled-inverse-sqrt"])
def test_a_schedule_of_torchs_kind_gives_update_n_its_factor(decay):
    config = ScheduleConfig(decay=decay, warmup_updates=5, **CONTROLLED.get(decay, {}))
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=0.25)
    scheduler = normscope.schedule(
        optimizer, decay=decay, warmup_updates=5, horizon_updates=100, **CONTROLLED.get(decay, {})
    )
    expected = 0.0
    for update in range(1, 101):
        weight.grad = torch.ones(())
        rate = 0.25 * factor(config, update, horizon_updates=100)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-14, abs=0)
        optimizer.step()
        scheduler.step()
        expected -= rate
    assert weight.item() == pytest.approx(
        expected, rel=1e-5
    )  # and the steps were taken with them, in float32


def scheduled(**settings):
    """A schedule over two groups of different peaks, and the optimiser it moves."""
    weights = [torch.nn.Parameter(torch.zeros(())) for _ in range(2)]
    groups = [
        {"params": [weight], "lr": lr} for weight, lr in zip(weights, (0.5, 2.0), strict=True)
    ]
    optimizer = torch.optim.SGD(groups)
    return optimizer, normscope.schedule(optimizer, **settings)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")
def test_a_schedules_state_goes_through_a_file_and_on(tmp_path):
    settings = {"decay": "cosine", "warmup_updates": 3, "horizon_updates": 10, "floor": 0.1}
    optimizer, scheduler = scheduled(**settings)
    for _ in range(4):
        scheduler.step()
    torch.save(scheduler.state_dict(), tmp_path / "schedule.pt")
    again, resumed = scheduled(**settings)
    resumed.load_state_dict(torch.load(tmp_path / "schedule.pt", weights_only=True))
    assert isinstance(resumed, torch.optim.lr_scheduler.LRScheduler)
    for update in range(6, 11):
        for one, its in ((optimizer, scheduler), (again, resumed)):
            its.step()
            config = ScheduleConfig(decay="cosine", warmup_updates=3, floor=0.1)
            rate = factor(config, update, horizon_updates=10)
            assert [group["lr"] for group in one.param_groups] == pytest.approx(
                [0.5 * rate, 2 * rate], rel=1e-14
            )


def test_a_state_is_plain_enough_for_json():
    settings = {"decay": "steps", "decay_at": [4, 6], "decay_factor": 0.5}
    _, scheduler = scheduled(**settings)
    optimizer, resumed = scheduled(**settings)
    resumed.load_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 2.0]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"decay": "cosin"}, "did you mean 'cosine'"),
        ({"decay": "cosine"}, "give horizon_updates"),
        ({"decay": "linear", "horizon_updates": 0}, "at least 1"),
        ({"decay": "steps"}, "decay_at"),
        ({"decay": "steps", "decay_at": ["2 epochs"]}, "decay_at must be a list of whole numbers"),
        ({"warmup_updates": -1}, "0 or more"),
    ],
)
def test_a_schedule_that_is_none_is_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        scheduled(**settings)


class TestDurations:
    @pytest.mark.parametrize(
        ("duration", "expected"),
        [
            (600, (600, "updates")),
            ("600", (600, "updates")),
            ("600 updates", (600, "updates")),
            (" 1 update ", (1, "updates")),
            ("8 epochs", (8, "epochs")),
            ("1 epoch", (1, "epochs")),
            ("1.5 epochs", (Fraction(3, 2), "epochs")),
            ("2  epochs", (2, "epochs")),
        ],
    )
    def test_understood(self, duration, expected):
        assert parse_duration(duration) == expected

    @pytest.mark.parametrize(
        "duration",
        [
            0,
            -3,
            "",
            "0",
            "-3",
            "0 epochs",
            "-1 epochs",
            "nan",
            "nan epochs",
            "inf epochs",
            "1e400",
            "1e400 epochs",
            "1e999999999",
            "1" * 400,
            "1.5 updates",
            "1/0 epochs",
            "epochs",
            "8 weeks",
            "8epochs",
            "8 epochs 2",
            "1 2",
            True,
        ],
    )
    def test_refused(self, duration):
        with pytest.raises(ValueError, match="positive number of updates or epochs") as caught:
            parse_duration(duration)
        assert repr(duration) in str(caught.value)

    def test_epochs_in_updates(self):
        updates_of = UpdatesOf(Fraction(7, 2))
        assert updates_of.exact("1 epoch") == Fraction(7, 2)
        assert [updates_of(d) for d in ("1 epoch", "2 epochs", "0.5 epochs", 9)] == [4, 7, 2, 9]

    def test_decay_at_in_updates(self):
        config = ScheduleConfig(decay="steps", decay_at=("2 epochs", 9)).in_updates(
            UpdatesOf(Fraction(7, 2))
        )
        assert config.decay_at == (7, 9)
        assert factor(config, 7, horizon_updates=20) == 1.0
        assert factor(config, 8, horizon_updates=20) == 0.1


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"warmup_updates": -1}, "must be 0 or more"),
        ({"decay_from_updates": -1}, "must be 0 or more"),
        ({"decay": "coupled-inverse-sqrt"}, "has no form without warm-up"),
        ({"decay": "steps"}, "needs decay_at"),
        ({"floor": -0.1}, r"floor must lie in \[0, 1\]"),
        ({"floor": math.nan}, r"floor must lie in \[0, 1\]"),
        ({"floor": 1.5}, r"floor must lie in \[0, 1\]"),
        ({"cooldown_share": 0.0}, "cooldown_share must lie above 0"),
        ({"cooldown_share": 1.01}, "cooldown_share must lie above 0 and not above 1"),
        ({"decay_factor": 0.0}, r"decay_factor in \(0, 1\]"),
        ({"decay_factor": 1.5}, r"decay_factor in \(0, 1\]"),
        ({"decay": "steps", "decay_at": ("0 epochs",)}, "positive number"),
    ],
)
def test_what_cannot_be_scheduled(schedule, message):
    with pytest.raises(ValueError, match=message):
        ScheduleConfig(**schedule)


def test_the_ends_of_a_range_belong_to_it():
    optimizer, _ = scheduled(decay="cosine", horizon_updates=1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 2.0]
    assert factors(3, horizon=2, decay="linear", floor=1.0) == [1.0] * 3
    assert factors(3, decay="steps", decay_at=(1,), decay_factor=1.0) == [1.0] * 3


@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("warmup_updates", [1, 7])
@pytest.mark.parametrize("decay", get_args(Decay))
def test_a_schedule_depends_on_the_horizon_where_its_factors_do(
    decay: Decay, warmup_updates: int, floor: float
) -> None:
    schedule = ScheduleConfig(
        decay=decay,
        warmup_updates=warmup_updates,
        decay_from_updates=5,
        decay_at=(4, 30),
        floor=floor,
    )
    shorter, longer = (
        [factor(schedule, u, horizon_updates=h) for u in range(1, 21)] for h in (20, 31)
    )
    assert depends_on_horizon(schedule) == (shorter != longer)


@pytest.mark.parametrize("decay", ["constant", "coupled-inverse-sqrt"])
@pytest.mark.parametrize("horizon", [6, 7, 8])
def test_a_warmup_longer_than_the_run_never_peaks(decay: Decay, horizon: int) -> None:
    schedule = ScheduleConfig(decay=decay, warmup_updates=7)
    highest = max(
        factor(schedule, update, horizon_updates=horizon) for update in range(1, horizon + 1)
    )
    assert never_peaks(schedule, horizon_updates=horizon) == (highest < 1)
