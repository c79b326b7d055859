"""Rows of results against numbers taken from the files by hand, and from a folder made for it."""

import json
from pathlib import Path

import pytest

from normscope.placement import registered
from normscope_studies.manual.measured import PlacementResults, measured

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def found() -> dict[str, PlacementResults]:
    return measured(RESULTS, registered())


def rows(found: dict[str, PlacementResults], name: str, folder: str) -> list[tuple[str, str]]:
    return [row for (_, of), rows in found[name].rows.items() if of == folder for row in rows]


def test_a_comparison_gives_the_mean_over_seeds_beside_the_baseline(found):
    data = json.loads((RESULTS / "placements_cpu/results.json").read_text())
    (arm,) = [arm for arm in data["arms"] if arm["label"] == "Pre-LN, no warm-up"]
    losses = sorted(seed["valid_loss_nats"] for seed in arm["seeds"])
    mean = f"{sum(losses) / 2:.3f} ({losses[0]:.3f} to {losses[1]:.3f}) nats per token, 2 seeds"
    expected = f"{mean}; unigram baseline {data['chance_nll_nats']:.3f}"
    assert ("validation loss after 500 updates, no warm-up, adam, rate 3e-3", expected) in rows(
        found, "pre-ln", "placements_cpu"
    )


def test_every_kind_of_result_is_read(found):
    """Each by a number that its own reading quotes."""
    assert any(shown.startswith("27.93; ") for _, shown in rows(found, "pre-ln", "depth"))
    folders = {folder for of in found.values() for _, folder in of.rows}
    assert {
        "optimizers_long",
        "converged",
        "hidden_state",
        "figure2",
        "figure4",
        "figure6",
        "placements_cpu_newer",
    } <= folders
    assert "theorem1" in {folder for _, folder in found["post-ln"].mentioned}


def test_runs_that_ended_non_finite_are_said_and_not_chosen(tmp_path):
    def arm(rate: float, *losses: float | None) -> dict[str, object]:
        seeds = [
            {"status": "finished" if n else "non-finite", "updates": 9, "valid_loss_nats": n}
            for n in losses
        ]
        return {
            "placement": "Pre-LN",
            "warmup_updates": 0,
            "optimizer": "adam",
            "peak_lr": rate,
            "seeds": seeds,
        }

    arms = [
        arm(1e-3, 4.0, 4.5),
        arm(1e-2, 3.0, None),
        {**arm(1.0, None, None), "placement": "Post-LN"},
    ]
    (tmp_path / "made").mkdir()
    (tmp_path / "made/results.json").write_text(
        json.dumps({"title": "Made", "chance_nll_nats": 6.0, "arms": arms})
    )
    found = measured(tmp_path, registered())
    assert rows(found, "pre-ln", "made") == [
        (
            "validation loss after 9 updates, no warm-up, adam, rate 1e-3, the best of 2",
            "4.250 (4.000 to 4.500) nats per token, 2 seeds; unigram baseline 6.000",
        )
    ]
    assert [shown for _, shown in rows(found, "post-ln", "made")] == ["non-finite in 2 seeds"]


def test_a_rate_with_more_seeds_is_not_called_the_best_of_those_with_fewer(tmp_path):
    def arm(rate: float, *losses: float) -> dict[str, object]:
        seeds = [{"status": "finished", "updates": 9, "valid_loss_nats": loss} for loss in losses]
        return {
            "placement": "Pre-LN",
            "warmup_updates": 0,
            "optimizer": "adam",
            "peak_lr": rate,
            "seeds": seeds,
        }

    (tmp_path / "made").mkdir()
    arms = [arm(1e-3, 4.0), arm(1e-2, 4.25, 4.75), arm(1e-1, 5.0)]
    (tmp_path / "made/results.json").write_text(
        json.dumps({"title": "Made", "chance_nll_nats": 6.0, "arms": arms})
    )
    ((what, shown),) = rows(measured(tmp_path, registered()), "pre-ln", "made")
    assert what.endswith("rate 0.01, the one with 2 seeds among 3 rates")
    assert shown.startswith("4.500 (4.250 to 4.750)")
