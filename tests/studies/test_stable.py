"""Post-LN once it is stable: made-up endings at two depths judged, and the smallest scale."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import in_process
from normscope.errors import UserError
from normscope_studies.converged.endings import PlacementEnding
from normscope_studies.engine import trainings
from normscope_studies.engine.ladders import LadderRun
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.stable import STUDY, StableConfig, claims, run

SMOKE: StableConfig = STUDY.scales["smoke"]
THREE = replace(SMOKE, seeds=3, depths=(4, 6), split="valid", peak_lrs=(1e-3, 2e-3))
UNIGRAM = 5.6


def run_of(nats: float, bleu: float = 0.0) -> LadderRun:
    cell: Any = SimpleNamespace(evaluations=lambda: {"valid": {"bleu": bleu}})
    return LadderRun(cell=cell, final_nats=nats, first_nats=9.0, finite=True)


def ending_of(
    placement: str, nats: list[float], *, next_rate: float, bleu: list[float] | None = None
) -> PlacementEnding:
    """Best at the smaller of two rates; next_rate: its loss at the larger one."""
    return PlacementEnding(
        placement=placement,
        looked={(0.1, 1e-3): run_of(nats[0]), (0.1, 2e-3): run_of(next_rate)},
        runs=[run_of(loss, score) for loss, score in zip(nats, bleu or [1.0] * 3, strict=True)],
        split="valid",
    )


PRE = ending_of("pre-ln", [2.0, 2.02, 1.99], next_rate=2.1, bleu=[30.0, 31.0, 30.5])


def test_a_placement_is_judged_where_it_also_learns_at_the_next_larger_rate() -> None:
    """Shallow it does, and ends lower; deep its best rate is the largest that it survives."""
    shallow = ending_of("post-ln", [1.9, 1.91, 1.9], next_rate=2.5, bleu=[29.0, 30.2, 29.6])
    deep = ending_of("post-ln", [2.7, 2.71, 2.69], next_rate=5.9)
    lower, better = claims(THREE, {4: [PRE, shallow], 6: [PRE, deep]}, UNIGRAM)
    assert lower.name == "Post-LN, where it is stable, ends lower than Pre-LN"
    assert (lower.verdict, lower.conditions) == (
        "undecided",
        "4+4 blocks; undecided: 6+6 blocks",
    )
    assert better.name == "Post-LN, where it is stable, translates better than Pre-LN"
    assert better.conditions == "not 4+4 blocks; undecided: 6+6 blocks"
    gains = np.subtract([2.0, 2.02, 1.99], [1.9, 1.91, 1.9])
    half = gains.std(ddof=1) / np.sqrt(3) * stats.t.ppf(0.975, 2)
    assert f"4+4 blocks: {gains.mean():.3f} ± {half:.3f}" in lower.found
    assert lower.found.endswith("not stable, so that it decides nothing, at 6+6 blocks")
    # Had it learned at the larger rate too, the same endings would speak against it.
    calm = ending_of("post-ln", [2.7, 2.71, 2.69], next_rate=3.0)
    assert claims(THREE, {4: [PRE, shallow], 6: [PRE, calm]}, UNIGRAM)[0].conditions == (
        "4+4 blocks; not 6+6 blocks"
    )


def test_a_placement_that_is_best_at_the_largest_rate_is_stable_as_it_learned_there() -> None:
    one = replace(PRE, looked={(0.1, 1e-3): run_of(2.5), (0.1, 2e-3): run_of(2.0)})
    assert one.is_stable(UNIGRAM)
    assert one.learned_at(UNIGRAM) == 2
    lost = replace(PRE, looked={(0.1, 1e-3): run_of(6.0), (0.1, 2e-3): run_of(5.9)})
    assert not lost.is_stable(UNIGRAM)
    assert lost.learned_at(UNIGRAM) == 0


def test_the_next_larger_rate_is_one_of_the_same_warm_up() -> None:
    looked = {
        (0.1, 1e-3): run_of(2.5),
        (0.1, 2e-3): run_of(2.4),
        (0.3, 1e-3): run_of(2.0),
        (0.3, 2e-3): run_of(6.0),
    }
    assert not replace(PRE, looked=looked).is_stable(UNIGRAM)


def test_all_depths_and_placements_are_corrected_together() -> None:
    """A gain that is sure by itself is not, among four: p = 0.03 against 0.05 / 4."""
    gains = np.array([0.10, 0.18, 0.12])
    level = 2 * stats.t.sf(gains.mean() / (gains.std(ddof=1) / np.sqrt(3)), 2)
    assert 0.05 / 4 < level < 0.05
    pre = replace(PRE, runs=[run_of(2.0)] * 3)
    weak = ending_of("post-ln", [2.0 - gain for gain in gains], next_rate=2.5)
    still = ending_of("deepnorm", [2.0, 2.3, 1.7], next_rate=2.5)
    alone = claims(replace(THREE, depths=(4,)), {4: [pre, weak]}, UNIGRAM)[0]
    assert alone.verdict == "reproduced"
    four = claims(THREE, {4: [pre, weak, still], 6: [pre, still, weak]}, UNIGRAM)
    assert [one.verdict for one in four[:2]] == ["undecided"] * 2
    assert "Corrected by Holm over 4 pairs" in four[0].found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depths": ()}, "depths: give one or more different values"),
        ({"depths": (6, 4)}, "depths must be positive and rise"),
        ({"beside": "lns"}, "must be among the placements"),
        ({"warmups": ("pre-ln:0.1", "post-ln:1")}, "share of post-ln must lie in"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StableConfig(**changes)


def test_text_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="prepare one with `normscope data prepare`"):
        run(StableConfig(corpus="nowhere"), Pieces(tmp_path))


def test_the_smallest_scale_trains_each_depth_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    config = replace(SMOKE, peak_lrs=(1e-3, 4e-3))
    findings, page = run_study(
        STUDY, config, Pieces(tmp_path), command="normscope study stable", scale="smoke"
    )
    for blocks in config.depths:
        looked = sorted(
            path.name for path in (tmp_path / f"blocks-{blocks}/updates-10/runs").iterdir()
        )
        judged = sorted(
            path.name for path in (tmp_path / f"blocks-{blocks}/updates-20/runs").iterdir()
        )
        # Two placements at two rates; of the best another seed each.
        assert len(looked) == 4
        assert {name[-6:] for name in judged} == {"seed-2"}
    assert [one["blocks"] for one in findings.data["depths"]] == [1, 2]
    assert len(findings.data["runs"]) == 2 * (4 + 2)
    # What is claimed of losses and of translations is stated at every scale.
    assert [one.name for one in findings.claims] == [
        "Post-LN, where it is stable, ends lower than Pre-LN",
        "Post-LN, where it is stable, translates better than Pre-LN",
    ]
    for depth in findings.data["depths"]:
        for found in depth["endings"]:
            nats = [loss for ladder in found["ladders_nats"].values() for loss in ladder]
            assert found["looked_at"] == 2
            assert found["learned_at"] == sum(
                loss < findings.data["unigram_nats"] - 0.05 for loss in nats
            )
    assert [figure.name for figure in findings.figures] == [
        "rates_1",
        "validation_1",
        "rates_2",
        "validation_2",
    ]
    assert "1+1 blocks and 2+2 blocks" in findings.conditions["models"]
    assert "where it is stable" in page.read_text(encoding="utf-8")
