"""Learning-rate sensitivity in figures 2 and 4: what made-up curves come to by hand."""

import math
from dataclasses import replace

import pytest

from made_curves import curve, trained_of
from normscope_studies.figure_2 import over_rates as over_rates_2
from normscope_studies.figure_4 import over_rates as over_rates_4
from normscope_studies.translation.figure_2 import SCALES as FIGURE_2
from normscope_studies.translation.figure_4 import SCALES as FIGURE_4
from normscope_studies.translation.page import findings, sensitivity_data

TWO, FOUR = FIGURE_2["cpu"], FIGURE_4["cpu"]
POST_BARE = over_rates_4(FOUR)["De-En, one decay"]["Post-LN, no warm-up"]


def test_it_is_the_mean_distance_from_the_best_rate() -> None:
    found = trained_of(
        dict(zip(POST_BARE, (3.0, 3.6, 4.5), strict=True)), epoch=FOUR.epoch_updates, spread=0.0
    )
    measured = found.lr_sensitivity(POST_BARE)
    assert measured.value == pytest.approx((0.0 + 0.6 + 1.5) / 3)
    assert (measured.best_rate, measured.seeds, measured.replaced) == (0, 3, 0)


def test_a_run_that_did_not_stay_finite_counts_as_its_first_loss() -> None:
    lasts = dict(zip(POST_BARE, (3.0, 3.6, 4.5), strict=True))
    found = trained_of(lasts, epoch=FOUR.epoch_updates, spread=0.0, seeds=1)
    found.curves[POST_BARE[-1]] = [
        curve(POST_BARE[-1], 4.5, epoch=FOUR.epoch_updates, ended="non-finite")
    ]
    measured = found.lr_sensitivity(POST_BARE)
    assert measured.value == pytest.approx((0.0 + 0.6 + 5.0) / 3), (
        "a curve of these begins at 8 nats"
    )
    assert math.isnan(measured.low)


def test_arms_of_one_rate_have_none() -> None:
    assert over_rates_4(replace(FOUR, pairs=("en-de",))) == {}
    one_rate = replace(TWO, adam_lrs=(1e-3,), sgd_lrs=(0.2,))
    assert sensitivity_data(over_rates_2(one_rate), trained_of({}, epoch=1)) == []


@pytest.mark.parametrize(
    ("config", "panels"), [(TWO, over_rates_2(TWO)), (FOUR, over_rates_4(FOUR))]
)
def test_the_page_says_it_of_every_curve(config, panels) -> None:
    lasts = {arm: 3.0 + 100 * arm.peak_lr for arm in config.arms()}
    found = trained_of(lasts, epoch=config.epoch_updates)
    page = findings(config, found, claims=[], figures=[], data={}, rates=panels)
    (table, _), data = page.tables, page.data["lr_sensitivity"]
    assert [tuple(row[:2]) for row in table.rows] == [
        (each["panel"], each["configuration"]) for each in data
    ]
    assert [row[4] for row in table.rows] == [each["sensitivity_nats"] for each in data]
    assert len(data) == sum(map(len, panels.values())) > 3
    assert all(each["low"] <= each["sensitivity_nats"] <= each["high"] for each in data)
    assert all(each["best_peak_lr"] == min(each["peak_lrs"]) for each in data)
