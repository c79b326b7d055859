"""Placements that move: made-up runs judged, what is refused, and the smallest scale."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import in_process
from normscope.errors import UserError
from normscope.train import RunFolder
from normscope_studies.adaptive.config import SCALES, MovingConfig
from normscope_studies.adaptive.study import STUDY, claims, ends, figures
from normscope_studies.engine import trainings
from normscope_studies.engine.ladders import Ladder, LadderRun, WarmupPair
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: MovingConfig = SCALES["smoke"]
RATES = (1e-3, 2e-3)
UNIGRAM = 6.0


def run_of(nats: float) -> LadderRun:
    cell: Any = SimpleNamespace(name="made up")
    return LadderRun(cell=cell, final_nats=nats, first_nats=6.5, finite=True)


def ladder_of(warmup_updates: int, finals: list[float]) -> Ladder:
    """finals: at 2e-3, one a seed."""
    return Ladder(
        warmup_updates=warmup_updates,
        peak_lrs=RATES,
        runs=[[run_of(5.5), run_of(finals[0])]],
        again={2e-3: [run_of(nats) for nats in finals]},
    )


def pair_of(without: float, warm: float) -> WarmupPair:
    """Three seeds that differ by a little, in pairs."""
    jitter = (0.0, 0.01, -0.01)
    return WarmupPair(
        without=ladder_of(0, [without + by for by in jitter]),
        warm=ladder_of(60, [warm + 0.5 * by for by in jitter]),
    )


def said(config: MovingConfig, pairs: dict[str, WarmupPair]) -> dict[str, Any]:
    return {one.name: one for one in claims(config, pairs, UNIGRAM)}


HYBRID = {
    "post-ln": pair_of(4.6, 4.0),
    "pre-ln": pair_of(4.5, 4.4),
    "pre-to-post": pair_of(3.95, 3.94),
}


def test_a_hybrid_that_ends_below_both_ends_without_a_warm_up_is_one() -> None:
    config = replace(SMOKE, seeds=3)
    found = said(config, HYBRID)
    below = found["below its fixed ends"]
    assert below.verdict == "reproduced"
    # Each at the better of its warm-ups: 3.94 against Post-LN's 4.0 and Pre-LN's 4.4.
    assert "Pre-LN to Post-LN less Post-LN: −0.060 ± 0.000" in below.found
    assert "Pre-LN to Post-LN less Pre-LN: −0.460" in below.found
    low = found["ends as low as Post-LN without a warm-up"]
    assert low.verdict == "reproduced"
    less = np.subtract([3.95, 3.96, 3.94], [4.0, 4.005, 3.995])
    half = less.std(ddof=1) / np.sqrt(3) * stats.t.ppf(0.975, 2)
    assert f"−0.050 ± {half:.3f}" in low.found
    assert found["what moves does without a warm-up"].verdict == "reproduced"
    assert found["Post-LN gains from its warm-up"].verdict == "reproduced"


def test_below_one_end_alone_is_not_below_both() -> None:
    between = HYBRID | {"pre-to-post": pair_of(4.2, 4.2)}
    found = said(replace(SMOKE, seeds=3), between)
    assert found["below its fixed ends"].verdict == "contradicted"
    assert found["ends as low as Post-LN without a warm-up"].verdict == "contradicted"


def test_what_has_not_learned_decides_nothing() -> None:
    lost = {name: pair_of(5.99, 5.99) for name in HYBRID}
    for one in said(replace(SMOKE, seeds=3), lost).values():
        assert one.verdict == "undecided"
    # An end that did not learn is beaten by what did.
    half = lost | {"pre-to-post": pair_of(4.0, 4.0)}
    assert said(replace(SMOKE, seeds=3), half)["below its fixed ends"].verdict == "reproduced"


def test_a_placement_with_one_end_is_held_to_that_one() -> None:
    config = replace(SMOKE, seeds=3, moving=("prores:pre-ln",))
    pairs = {
        "post-ln": pair_of(3.0, 3.0),
        "pre-ln": pair_of(4.5, 4.4),
        "prores": pair_of(4.1, 4.1),
    }
    assert said(config, pairs)["below its fixed ends"].verdict == "reproduced"
    assert config.placements == ("post-ln", "pre-ln", "prores")


def test_the_table_has_the_lowest_first_and_each_panel_its_ends() -> None:
    config = replace(SMOKE, seeds=3)
    made = ends(config, HYBRID)
    assert [row[:2] for row in made.rows] == [
        ["Pre-LN to Post-LN", "yes"],
        ["Post-LN", "no"],
        ["Pre-LN", "no"],
    ]
    cold, warm = figures(config, HYBRID)
    assert [one.label for one in cold.panels[0].series] == [
        "Pre-LN to Post-LN",
        "Pre-LN",
        "Post-LN",
    ]
    assert cold.panels[0].series[0].y == pytest.approx([5.5, 3.95])
    assert warm.panels[0].series[0].y == pytest.approx([5.5, 3.94])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moving": ()}, "moving: give one or more different values"),
        ({"moving": ("pre-to-post",)}, "PLACEMENT:END.*got pre-to-post with no end"),
        ({"moving": ("sub-ln:pre-ln",)}, "with a placement that has a scheduled number"),
        ({"moving": ("pre-to-post:prores",)}, "prores is named as an end, and moves itself"),
        ({"moving": ("pre-to-post:t-fixup",)}, "t-fixup is not defined for a decoder alone"),
        ({"over_updates": 0}, "over_updates must be positive"),
        ({"best_rates": 6}, "best_rates must lie in"),
        ({"peak_lrs": (2e-3, 1e-3)}, "peak_lrs must be positive and rise"),
        ({"warmup_updates": 0}, "warmup_updates must lie between 0 and updates=600"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MovingConfig(**changes)


def test_text_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match="prepare one with `normscope data documents`"):
        MovingConfig(text="nowhere").base()


def test_the_smallest_scale_trains_what_moves_and_its_ends_by_the_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    config = replace(SMOKE, seeds=1, moving=("prores:pre-ln",))
    findings, page = run_study(
        STUDY, config, Pieces(tmp_path), command="normscope study adaptive", scale="smoke"
    )
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    # Three placements, without warm-up and with, a seed on one rate and another at the best.
    assert len(names) == 3 * 2 * 2
    moved = tmp_path / "runs" / next(name for name in names if name.startswith("prores"))
    events = [event for event in RunFolder(moved).events() if event["event"] == "update"]
    assert [event["open"] for event in events] == [0.5, 1.0, 1.0, 1.0]
    assert [row["placement"] for row in findings.data["placements"]] == [
        "post-ln",
        "pre-ln",
        "prores",
    ]
    assert set(findings.data["placements"][2]["less_ends_nats"]) == {"pre-ln"}
    assert "verdicts mean nothing" in page.read_text(encoding="utf-8")
