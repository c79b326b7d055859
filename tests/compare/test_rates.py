"""Final loss over the rate, from run folders to the page, and the sensitivity beside the
definition.
"""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normscope.cli.display import print_summary
from normscope.compare.curves import EndedRun, best_of_each, lowest, rate_curves
from normscope.compare.grid import Arm, Grid
from normscope.compare.manifest import about
from normscope.compare.page import compare, configuration_names
from normscope.data.opening import toy_corpus
from normscope.report.comparison.contents import ComparisonPage, RateCurve, SeedResult, Status
from normscope.train.record import record_of
from tiny import tiny, write_events

START = 6.0


def ran(
    lr: float,
    loss: float | None,
    *,
    seed: int = 1,
    placement: str = "pre-ln",
    warmup: int = 0,
    status: Status = Status.FINISHED,
    start: float | None = START,
    optimizer: str = "adam",
) -> EndedRun:
    events = [
        {"event": "update", "update": n, "nll_nats": start - n + 1}
        for n in (1, 2)
        if start is not None
    ]
    result = SeedResult(seed=seed, status=status, updates=10, valid_loss_nats=loss, summed_lr=0.0)
    return EndedRun(Arm(placement, warmup, lr, optimizer), result, record_of(events))


def rated(runs: list[EndedRun]) -> tuple[list[RateCurve], list[float]]:
    return rate_curves(runs, configuration_names(list(dict.fromkeys(run.arm for run in runs))))


def test_the_sensitivity_is_that_of_the_definition() -> None:
    # Three seeds at three rates; at the highest one run diverged and one ended worse than it began.
    losses = {0.1: (2.0, 3.0, 2.5), 0.2: (1.0, 2.0, 1.5), 0.4: (math.nan, 7.0, 3.0)}
    runs = [
        ran(lr, loss, seed=seed, status=Status.FINISHED if loss == loss else Status.NON_FINITE)
        for lr, several in losses.items()
        for seed, loss in enumerate(several, 1)
    ]
    (curve,), shared = rated(runs)
    assert shared == [0.1, 0.2, 0.4]
    assert [str(name) for name in curve.configurations] == [
        f"Pre-LN, no warm-up, rate {lr}" for lr in shared
    ]
    means = [2.5, 1.5, (START + START + 3.0) / 3]
    assert curve.sensitivity is not None
    assert curve.sensitivity.value == pytest.approx(sum(means) / 3 - 1.5, rel=1e-14)
    assert (curve.sensitivity.best_lr, curve.sensitivity.seeds, curve.sensitivity.replaced) == (
        0.2,
        3,
        2,
    )
    assert curve.sensitivity.low <= curve.sensitivity.value <= curve.sensitivity.high
    assert [list(row) for row in curve.seeds_losses] == [
        [2.0, 1.0, START],
        [3.0, 2.0, START],
        [2.5, 1.5, 3.0],
    ]
    assert [list(row) for row in curve.seeds_replaced] == [
        [False, False, True],
        [False, False, True],
        [False] * 3,
    ]
    assert list(curve.initial_nats) == [START] * 3
    assert (
        "over 3 rates from 0.1 to 0.4; best at 0.2; 2 runs count as the loss at initialisation"
        in curve.summary
    )


def test_the_range_is_what_all_configurations_have() -> None:
    more = [ran(lr, 2.0 + lr) for lr in (0.1, 0.2, 0.4)]
    fewer = [ran(lr, 3.0 + lr, placement="post-ln") for lr in (0.2, 0.4, 0.8)]
    curves, shared = rated([*more, *fewer])
    assert shared == [0.2, 0.4]
    assert [str(curve.name) for curve in curves] == ["Pre-LN, no warm-up", "Post-LN, no warm-up"]
    assert [curve.sensitivity and curve.sensitivity.value for curve in curves] == pytest.approx(
        [0.1, 0.1]
    )
    assert list(curves[0].peak_lrs) == [0.1, 0.2, 0.4]
    assert "one seed" in curves[0].summary


def test_optimisers_and_warm_ups_have_curves_of_their_own() -> None:
    runs = [
        ran(lr, 2.0, warmup=w, optimizer=o)
        for w in (0, 5)
        for o in ("adam", "sgd")
        for lr in (0.1, 0.2)
    ]
    curves, _ = rated(runs)
    assert [curve.name.variant for curve in curves] == [
        "no warm-up, adam",
        "no warm-up, sgd",
        "warm-up 5, adam",
        "warm-up 5, sgd",
    ]


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (
            [ran(0.1, 2.0), ran(0.2, 2.0), ran(0.4, 1.0, placement="post-ln")],
            "have 0 rates in common, and it needs two",
        ),
        (
            [ran(0.1, 2.0), ran(0.2, 2.0, status=Status.FAILED)],
            "no seed has a run at every rate that came to its end",
        ),
        ([ran(0.1, 2.0, warmup=99), ran(0.2, 2.0, warmup=99)], "and reached its peak rate"),
        (
            [ran(0.1, 2.0, start=None), ran(0.2, 2.0, start=None)],
            "no run had a finite loss at initialisation",
        ),
    ],
)
def test_where_there_is_none_it_says_why(runs: list[EndedRun], says: str) -> None:
    curve = rated(runs)[0][0]
    assert curve.sensitivity is None
    assert curve.summary.startswith("no learning-rate sensitivity: ")
    assert says in curve.summary


def test_a_seed_that_has_not_run_everywhere_is_left_out() -> None:
    runs = [
        ran(0.1, 2.0),
        ran(0.2, 3.0),
        ran(0.1, 9.0, seed=2),
        ran(0.2, None, seed=2, status=Status.MISSING),
    ]
    (curve,), _ = rated(runs)
    assert curve.sensitivity is not None
    assert (curve.sensitivity.seeds, curve.sensitivity.value) == (1, 0.5)
    assert math.isnan(curve.seeds_losses[1][1])


def test_a_run_that_stopped_at_its_first_update_counts_as_the_start_of_its_seed() -> None:
    (curve,), _ = rated([ran(0.1, 2.0), ran(0.2, None, status=Status.NON_FINITE, start=None)])
    assert list(curve.seeds_losses[0]) == [2.0, START]


def test_one_rate_has_no_curve() -> None:
    assert rated([ran(0.1, 2.0), ran(0.1, 2.0, placement="post-ln")]) == ([], [])


def test_the_best_of_each_has_the_lowest_mean_of_finished_runs() -> None:
    runs = [
        ran(0.1, 3.0),
        ran(0.2, 2.0),
        ran(0.2, 9.0, seed=2),
        ran(0.1, 3.1, seed=2),
        ran(0.4, 1.0, status=Status.FAILED),
    ]
    assert [
        arm.peak_lr for arm in best_of_each([*runs, ran(0.8, None, status=Status.NON_FINITE)])
    ] == [0.1]


def test_the_lowest_of_many_arms_are_those_of_the_lowest_means() -> None:
    runs = [ran(rate, 3.0 + abs(rate - 0.3)) for rate in (0.1, 0.2, 0.3, 0.4, 0.5)]
    assert sorted(arm.peak_lr for arm in lowest([*runs, ran(0.3, 9.0), ran(0.9, None)], 2)) == [
        0.2,
        0.4,
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[ComparisonPage, Path]:
    """The report of fourteen configurations, more than a figure over updates draws."""
    folder = tmp_path_factory.mktemp("rates")
    rates = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
    pairs = (("post-ln", 0), ("pre-ln", 0))
    grid = Grid(placements_and_warmups=pairs, peak_lrs=rates, optimizers=("adam",), seeds=2)
    config = tiny("train.duration=2")
    cells = grid.cells(config, folder)
    for cell in cells:
        diverged = cell.arm.placement == "post-ln" and cell.arm.peak_lr > 0.05
        final = 2 + abs(math.log10(cell.arm.peak_lr) + 2.5) + 0.1 * cell.seed
        last: list[dict[str, Any]] = [
            {"event": "non-finite", "update": 2, "reason": "the loss (nan)"}
        ]
        if not diverged:
            last = [
                {"event": "validation", "update": 2, "nll_nats": final},
                {"event": "finished", "update": 2},
            ]
        first = {"event": "update", "update": 1, "nll_nats": START, "lr": 0.1, "gradient_norm": 1.0}
        write_events(cell.folder, [first, *last])
    page, _ = compare(cells, about(config, toy_corpus(5)).grown("T", "C", cells), folder)
    return page, folder


def test_the_page_the_terminal_and_the_data_say_the_same(
    written: tuple[ComparisonPage, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    page, folder = written
    saved = json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)[
        "learning_rate_sensitivity"
    ]
    html = (folder / "report.html").read_text()
    print_summary(page, folder / "report.html")
    printed = capsys.readouterr().out
    assert " ".join(printed.split()).startswith(page.conclusion[0])
    assert saved["rates"] == [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1]
    for arm, curve in zip(saved["arms"], page.rate_curves, strict=True):
        shown = f"{arm['sensitivity']['value']:.3f}"
        assert f'<td class="n">{shown}</td>' in html
        assert f"{arm['label']}: learning-rate sensitivity {shown} nats per token" in printed
        assert arm["seeds_losses"] == [list(row) for row in curve.seeds_losses]
    assert "counts as its loss at initialisation" in html
    post, _ = saved["arms"]
    assert [row[-1] for row in post["seeds_losses"]] == [START, START]


def test_of_many_configurations_the_figures_over_updates_draw_the_best_of_each(
    written: tuple[ComparisonPage, Path],
) -> None:
    page, folder = written
    assert len(page.configurations) == 14
    assert [str(curve.name) for curve in page.valid_curves] == [
        "Post-LN, no warm-up, rate 3e-3",
        "Pre-LN, no warm-up, rate 3e-3",
    ]
    html = (folder / "report.html").read_text()
    assert html.count('<th scope="row">Post-LN, no warm-up, rate 1e-4</th>') >= 2
    assert "the tables have every rate" in html


def test_the_picture_has_a_cross_for_each_run_counted_as_at_its_start(
    written: tuple[ComparisonPage, Path],
) -> None:
    text = (written[1] / "loss_by_rate.svg").read_text()
    words = ET.fromstring(text).findtext("{http://www.w3.org/2000/svg}desc") or ""
    assert "Post-LN, no warm-up 3.650 to 6.000, counts as the loss at initialisation; " in words
    assert "counts as the loss at initialisation" in text


def test_a_sweep_names_the_vertex_of_a_parabola_with_its_range() -> None:
    losses = {0.1: (2.0, 2.2), 0.2: (1.0, 1.1), 0.4: (1.6, 1.5)}
    runs = []
    for lr, several in losses.items():
        runs += [ran(lr, loss, seed=seed) for seed, loss in enumerate(several, 1)]
    (curve,), _ = rated(runs)
    means = [sum(several) / 2 for several in losses.values()]
    curvature, slope, _ = np.polyfit(np.log2(list(losses)), means, 2)
    assert curve.vertex_lr == pytest.approx(2 ** (-slope / (2 * curvature)), rel=1e-9)
    assert curve.vertex_low <= curve.vertex_lr <= curve.vertex_high
    assert math.isnan(curve.further_lr)
    assert "a parabola through the losses is lowest at 0.226 (" in curve.summary
    assert "over resamples of 2 seeds" in curve.summary


def test_a_sweep_that_is_lowest_at_an_end_says_what_to_train_next() -> None:
    runs = [ran(lr, loss) for lr, loss in ((0.1, 3.0), (0.2, 2.0), (0.4, 1.0))]
    (curve,), _ = rated(runs)
    assert curve.further_lr == pytest.approx(0.8)
    assert math.isnan(curve.vertex_lr)
    assert curve.summary.endswith("lowest at the end of the rates, 0.4: train 0.8 too")


def test_two_rates_name_no_vertex() -> None:
    (curve,), _ = rated([ran(0.1, 3.0), ran(0.2, 2.0)])
    assert math.isnan(curve.vertex_lr)
    assert math.isnan(curve.further_lr)
    assert "parabola" not in curve.summary
