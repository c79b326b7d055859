"""Placements at their best warm-up and rate: made-up endings judged, the choice, and the smallest
scale.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import in_process
from normscope.errors import UserError
from normscope_studies.converged.config import SCALES, ConvergedConfig
from normscope_studies.converged.endings import PlacementEnding
from normscope_studies.converged.study import STUDY, claims, ends, run
from normscope_studies.engine import trainings
from normscope_studies.engine.ladders import LadderRun
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: ConvergedConfig = SCALES["smoke"]


def run_of(nats: float, bleu: float = 0.0, *losses: float) -> LadderRun:
    """A run that ended there, by way of these losses, one a hundred updates."""
    events = [
        {"event": "validation", "update": 100 * (place + 1), "nll_nats": loss}
        for place, loss in enumerate(losses)
    ]
    cell: Any = SimpleNamespace(
        evaluations=lambda: {"valid": {"bleu": bleu}} if bleu else {},
        folder=SimpleNamespace(events=lambda: events),
    )
    return LadderRun(cell=cell, final_nats=nats, first_nats=9.0, finite=True)


def ending_of(placement: str, nats: list[float], bleu: list[float]) -> PlacementEnding:
    return PlacementEnding(
        placement=placement,
        looked={
            (0.1, 1e-3): run_of(nats[0] + 1),
            (0.1, 2e-3): run_of(nats[0]),
            (0.3, 1e-3): run_of(nats[0] + 2),
        },
        runs=[run_of(loss, score) for loss, score in zip(nats, bleu, strict=True)],
        split="valid",
    )


def test_a_placement_is_judged_beside_the_other_in_loss_and_in_bleu() -> None:
    """Intervals over seeds in pairs as scipy has them, and Holm's correction for both."""
    config = replace(SMOKE, seeds=3, warmups=("pre-ln:0.1", "post-ln:0.1", "peri-ln:0.1"))
    pre, post = [2.0, 2.02, 1.99], [1.5, 1.51, 1.50]
    endings = [
        ending_of("pre-ln", pre, [30.0, 31.0, 30.5]),
        ending_of("post-ln", post, [35.0, 35.5, 35.2]),
        ending_of("peri-ln", [2.0, 2.03, 1.97], [25.0, 25.5, 25.2]),
    ]
    lower, better = claims(config, endings, 6.0)
    assert (lower.verdict, lower.conditions) == ("undecided", "Post-LN; undecided: Peri-LN")
    assert (better.verdict, better.conditions) == ("undecided", "Post-LN; not Peri-LN")
    gains = np.subtract(pre, post)
    half = gains.std(ddof=1) / np.sqrt(3) * stats.t.ppf(0.975, 2)
    assert f"Post-LN: {gains.mean():.3f} ± {half:.3f}" in lower.found
    assert lower.found.endswith("Corrected by Holm over 2 placements")
    made = ends(config, endings)
    assert [row[0] for row in made.rows] == ["Post-LN", "Peri-LN", "Pre-LN"]
    assert list(made.rows[0][1:3]) == ["10 %", "0.002*"]
    assert made.columns[-3:] == ["BLEU", "above Pre-LN", "gained by the last tenth"]


def test_a_pair_of_which_neither_learned_decides_nothing() -> None:
    endings = [
        ending_of(name, nats, [1.0, 1.0])
        for name, nats in (("pre-ln", [5.0, 5.0]), ("post-ln", [4.9, 4.91]))
    ]
    assert {claim.verdict for claim in claims(SMOKE, endings, 4.94)} == {"undecided"}
    assert claims(SMOKE, endings, 6.0)[0].verdict == "reproduced"


def test_what_the_last_tenth_brought() -> None:
    runs = [
        run_of(1.0, 0.0, *losses) for losses in ([3.0] * 8 + [2.0, 1.9], [3.0] * 8 + [2.4, 2.1])
    ]
    one = PlacementEnding(placement="pre-ln", looked={}, runs=runs, split="")
    assert one.late_gain == pytest.approx((0.1 + 0.3) / 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beside": "lns"}, "must be among the placements"),
        ({"warmups": ("pre-ln:0.1", "pre-ln:0.2")}, "not alone there"),
        ({"warmups": ("pre-ln:0.1", "post-ln:long")}, "PLACEMENT:SHARE"),
        ({"warmups": ("pre-ln:0.1", "post-ln:1")}, "share of post-ln must lie in"),
        ({"peak_lrs": (2e-3, 1e-3)}, "peak_lrs must be positive and rise"),
        ({"updates": 100}, "updates must be at least 200"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConvergedConfig(**changes)


def test_text_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="prepare one with `normscope data prepare`"):
        run(ConvergedConfig(corpus="nowhere"), Pieces(tmp_path))


def test_the_smallest_scale_chooses_by_one_seed_and_judges_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    findings, page = run_study(
        STUDY, SMOKE, Pieces(tmp_path), command="normscope study converged", scale="smoke"
    )
    looked, judged = (
        sorted(path.name for path in (tmp_path / f"updates-{n}/runs").iterdir()) for n in (10, 20)
    )
    # Two warm-ups of Pre-LN and one of Post-LN, at two rates; of the best two seeds each.
    assert len(looked) == 3 * 2
    assert {name[-6:] for name in looked} == {"seed-1"}
    assert {name[-6:] for name in judged} == {"seed-2", "seed-3"}
    for found in findings.data["endings"]:
        lowest = min(nats for ladder in found["ladders_nats"].values() for nats in ladder)
        best = found["ladders_nats"][f"{found['warmup_share']:g}"][
            SMOKE.peak_lrs.index(found["best_lr"])
        ]
        assert best == lowest
        arm = f"{found['placement']}_warmup-{found['warmup_updates']}_lr-{found['best_lr']:g}_"
        names = [name for name in judged if name.startswith(arm)]
        assert len(names) == len(found["bleu"]) == 2
    assert findings.data["bigram_nats"] < findings.data["unigram_nats"]
    assert "Ends lower than Pre-LN" in page.read_text(encoding="utf-8")
    silent = replace(SMOKE, split="")
    again, _ = run_study(
        STUDY, silent, Pieces(tmp_path), command="normscope study converged", scale="smoke"
    )
    assert [claim.name for claim in again.claims] == ["Ends lower than Pre-LN"]
    assert not any("bleu" in one for one in again.data["endings"])
