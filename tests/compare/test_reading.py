"""From metrics to verdicts, curves and squares, each against what is computed by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from normscope.compare.curves import (
    block_squares,
    clock,
    gradient_profiles,
    later_profiles,
    schedule,
)
from normscope.compare.grid import Cell, Grid
from normscope.compare.manifest import Manifest, about
from normscope.compare.page import compare, configuration_names
from normscope.data.opening import toy_corpus
from normscope.report.comparison.contents import BlockPlace, Name
from normscope.tasks.translation import TRANSLATION
from normscope.train.record import record_of
from tiny import tiny, write_events


def test_the_squares_of_a_block_are_those_of_its_parameters_in_order_of_depth() -> None:
    config = tiny("model.encoder_blocks=11", "model.decoder_blocks=2")
    model = TRANSLATION.build(config, toy_corpus(5).codec)
    norms = {name: float(p.detach().norm()) for name, p in reversed(list(model.named_parameters()))}
    squares = block_squares(norms)
    assert [str(block) for block in squares] == [f"encoder {b}" for b in range(1, 12)] + [
        "decoder 1",
        "decoder 2",
    ]
    for stack, blocks in (("encoder", model.encoder.blocks), ("decoder", model.decoder.blocks)):
        for number, block in enumerate(blocks, 1):
            wanted = sum(float((p.detach().double() ** 2).sum()) for p in block.parameters())
            assert squares[BlockPlace(stack, number)] == pytest.approx(wanted, rel=1e-5)


def cells(folder: Path) -> list[Cell]:
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(0.1,), optimizers=("adam",), seeds=3
    )
    return grid.cells(tiny("train.duration=6"), folder)


def write(cell: Cell, events: list[dict[str, Any]]) -> None:
    write_events(cell.folder, events)


def manifest(cells: list[Cell]) -> Manifest:
    return about(cells[0].config, toy_corpus(5)).grown("T", "C", cells)


def test_curves_put_every_value_at_its_own_update(tmp_path: Path) -> None:
    """One seed skips an update, one stops at one, one ends early: none may move the points of
    another.
    """

    def updates(*numbers: int) -> list[dict[str, Any]]:
        return [
            {
                "event": "update",
                "update": n,
                "nll_nats": float(n),
                "lr": 0.1,
                "gradient_norm": 2.0 * n,
            }
            for n in numbers
        ]

    skipping, stopped, running = three = cells(tmp_path)
    write(skipping, [*updates(1, 2, 4, 5, 6), {"event": "finished", "update": 6}])
    write(
        stopped,
        [*updates(1, 2, 3), {"event": "non-finite", "update": 4, "reason": "the loss (nan)"}],
    )
    write(running, [*updates(1, 2)])
    page, _ = compare(three, replace(manifest(three), failed={running.name: "killed"}), tmp_path)
    curve = page.train_curves[0]
    assert list(curve.updates) == [1, 2, 3, 4, 5, 6]
    assert [[str(v) for v in row] for row in curve.seeds_values] == [
        ["1.0", "2.0", "nan", "4.0", "5.0", "6.0"],
        ["1.0", "2.0", "3.0", "nan"],
        ["1.0", "2.0"],
    ]
    norms = page.gradient_curves[0]
    assert list(norms.updates) == [1, 2, 3, 4, 5, 6]
    assert list(norms.seeds_values[2]) == [2.0, 4.0]
    results = page.configurations[0].seeds
    assert [(s.status, s.updates, s.message) for s in results] == [
        ("finished", 6, ""),
        ("non-finite", 4, "the loss (nan)"),
        ("failed", 2, "killed"),
    ]
    assert [s.summed_lr for s in results] == pytest.approx([0.5, 0.3, 0.2], rel=1e-12)
    saved = json.loads(
        (tmp_path / "results.json").read_text(), parse_constant=pytest.fail
    )  # no NaN in JSON
    assert saved["arms"][0]["seeds"][1]["valid_loss_nats"] is None


def test_a_stop_behind_the_last_update_lengthens_the_axis(tmp_path: Path) -> None:
    three = cells(tmp_path)
    for cell in three:
        write(cell, [{"event": "non-finite", "update": 1, "reason": "the weights"}])
    page, _ = compare(three, manifest(three), tmp_path)
    assert list(page.train_curves[0].updates) == [1]
    assert page.configurations[0].verdict.text == "diverged"


def test_configurations_that_start_with_the_same_gradients_share_a_profile() -> None:
    def runs(*norms: float) -> Any:
        names = [f"encoder.blocks.0.w_{i}" for i in range(2)]
        before = {"event": "initialisation", "update": 0}
        every = [before | {"gradient_norms": dict.fromkeys(names, norm)} for norm in norms]
        return [(None, record_of([event])) for event in every]

    names = [
        Name("Post-LN", "no warm-up"),
        Name("Post-LN", "warm-up 4"),
        Name("Pre-LN", ""),
        Name("Post-LN", "sgd"),
    ]
    same, other = runs(3.0, 4.0), runs(3.0, 5.0)
    found = gradient_profiles(
        [*zip(names, (same, same, same, other), strict=True), (Name("Post-LN", "waiting"), [])]
    )
    assert [profile.label for profile in found] == [
        "Post-LN, no warm-up; warm-up 4",
        "Pre-LN",
        "Post-LN, sgd",
    ]
    assert [list(row) for row in found[0].seeds_norms] == [
        [pytest.approx(18**0.5)],
        [pytest.approx(32**0.5)],
    ]


def test_labels_name_what_differs_and_nothing_else() -> None:
    def labels(**axes: Any) -> list[str]:
        whole = {
            "placements_and_warmups": (("pre-ln", 0), ("post-ln", 4)),
            "peak_lrs": (0.1,),
            "optimizers": ("adam",),
        }
        return [
            str(name)
            for name in configuration_names(
                list(Grid(**{**whole, **axes}, seeds=1).arms())
            ).values()
        ]

    assert labels() == ["Pre-LN, no warm-up", "Post-LN, warm-up 4"]
    assert labels(peak_lrs=(0.1, 1e-5))[:2] == [
        "Pre-LN, no warm-up, rate 0.1",
        "Pre-LN, no warm-up, rate 1e-5",
    ]
    assert labels(optimizers=("adam", "sgd"))[1] == "Pre-LN, no warm-up, sgd"


def test_a_clock_is_the_mean_of_what_the_seeds_had_seen_after_each_update() -> None:
    def runs(*tokens: list[int]) -> Any:
        line = {"event": "update", "lr": 0.5, "epoch": 0.0}
        return [
            (
                None,
                record_of(
                    line | {"update": u, "epoch": u / 2, "target_tokens": n}
                    for u, n in enumerate(row, 1)
                ),
            )
            for row in tokens
        ]

    assert clock(runs([10, 20, 30], [20, 30])) == {
        "update": [1, 2, 3],
        "target tokens": [15, 40, 60],
        "epoch": [0.5, 1.0, 1.5],
        "cumulative learning rate": [0.5, 1.0, 1.5],
    }
    assert clock([(None, record_of([]))]) == {}


def test_later_profiles_are_of_the_updates_that_every_seed_recorded() -> None:
    def monitored(update: int, norm: float) -> dict[str, Any]:
        at = "normscope/decoder/block_2"
        norms = {
            f"{at}/attention/gradient_norm": 3 * norm,
            f"{at}/feed_forward/gradient_norm": 4 * norm,
        }
        other = {
            f"{at}/attention/share": 0.5,
            "normscope/encoder/block_1/attention/gradient_norm": 2 * norm,
        }
        return {"event": "monitor", "update": update} | norms | other

    logs = [[monitored(1, 1.0), monitored(9, 2.0)], [monitored(9, 4.0)]]
    runs: Any = [(None, record_of(log)) for log in logs]
    empty: Any = [(None, record_of([]))]
    (found,) = later_profiles([(Name("Pre-LN"), runs), (Name("Post-LN"), empty)])
    assert found.update == 9
    assert [str(block) for block in found.blocks] == ["encoder 1", "decoder 2"]
    assert [list(row) for row in found.seeds_norms] == [[4.0, 10.0], [8.0, 20.0]]


@pytest.mark.parametrize(("duration", "most"), [(6, 6), (1000, 1000), (10**6, 1001)])
def test_a_schedule_that_no_run_has_followed_yet_is_drawn_from_its_formula(
    duration: int, most: int, tmp_path: Path
) -> None:
    """Of a long one some updates: its ends and the peak of the rate among them."""
    grid = Grid(
        placements_and_warmups=(("pre-ln", 4),), peak_lrs=(0.1,), optimizers=("adam",), seeds=1
    )
    settings = (f"train.duration={duration}", 'schedule.decay="linear"')
    (cell,) = grid.cells(tiny(*settings), tmp_path)
    drawn = schedule(Name("Pre-LN"), [(cell, record_of([]))])
    assert len(drawn.updates) <= most
    assert {1, 4, duration} <= set(drawn.updates)
    if duration <= 1000:
        assert list(drawn.updates) == list(range(1, duration + 1))
    start = max(1, duration - cell.config.schedule.decay_from_updates)
    rates = [
        0.1 * min(1, update / 4) * min(1, (duration + 1 - update) / start)
        for update in drawn.updates
    ]
    assert drawn.seeds_values[0] == pytest.approx(rates, rel=1e-12)
