"""Conditioning throughout training: stable ranks, courses of made-up logs, claims, and the smallest
scale.
"""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import in_process
from normscope.runs.config import load_run_config
from normscope.tasks.language_model import LANGUAGE_MODEL
from normscope.train import RunFolder
from normscope_studies.conditioning.claims import claims
from normscope_studies.conditioning.config import SCALES, ConditioningConfig
from normscope_studies.conditioning.courses import (
    GradientCourse,
    PlacementGradients,
    course_of,
    times_worse,
)
from normscope_studies.conditioning.measure import (
    block_matrices,
    stable_rank,
    stable_ranks,
)
from normscope_studies.conditioning.study import STUDY, ends, figures
from normscope_studies.engine import trainings
from normscope_studies.engine.ladders import Ladder, LadderRun
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: ConditioningConfig = SCALES["smoke"]
UNIGRAM = 6.0


def test_the_stable_rank_is_that_of_numpy_and_of_what_is_known() -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(7, 12, generator=generator)
    expected = np.linalg.norm(matrix.numpy(), "fro") ** 2 / np.linalg.norm(matrix.numpy(), 2) ** 2
    assert stable_rank(matrix) == pytest.approx(expected, rel=1e-5)
    assert stable_rank(torch.outer(torch.ones(5), torch.arange(1.0, 4.0))) == pytest.approx(1.0)
    assert stable_rank(3 * torch.eye(6)) == pytest.approx(6.0)
    with pytest.raises(ValueError, match="has no stable rank"):
        stable_rank(torch.zeros(3, 3))


def event(update: int, norms: dict[str, float]) -> list[dict[str, Any]]:
    """A logged update, and what the monitor measured of it."""
    measured = {f"normscope/decoder/{place}/gradient_norm": norm for place, norm in norms.items()}
    return [
        {"event": "update", "update": update, "loss_nats": 5.0},
        {"event": "monitor", "update": update} | measured,
    ]


def test_a_block_s_norm_is_that_of_all_its_sub_layers_and_the_spread_is_over_blocks() -> None:
    first = {
        "block_01/attention": 3.0,
        "block_01/feed_forward": 4.0,
        "block_02/attention": 6.0,
        "block_02/feed_forward": 8.0,
    }
    second = dict.fromkeys(first, 0.0)
    third = first | {"block_02/attention": 0.0, "block_02/feed_forward": 1.0}
    events = [
        one
        for update, norms in ((1, first), (3, second), (5, third))
        for one in event(update, norms)
    ]
    course = course_of(events, (0, 4), [[2.0, 4.0], [None, None]])
    assert course.updates == [1, 3, 5]
    # 10 over 5; all of it 0; 5 over 1.
    assert course.spread == pytest.approx([2.0, math.nan, 5.0], nan_ok=True)
    assert (course.first_spread, course.worst_spread, course.last_spread) == (2.0, 5.0, 5.0)
    assert course.rank == pytest.approx([3.0, math.nan], nan_ok=True)
    assert (course.first_rank, course.worst_rank) == (3.0, 3.0)


def course(*spread: float, rank: tuple[float, ...]) -> GradientCourse:
    return GradientCourse(
        updates=[1, 3, 5], spread=np.array(spread), looked_at=[0, 3, 6], rank=np.array(rank)
    )


def placed(placement: str, nats: float, factor: float, rank: float) -> PlacementGradients:
    """Three seeds that differ by a little; factor: of the worst spread, in the middle."""
    jitter = (0.0, 0.01, -0.01)
    runs = [
        LadderRun(
            cell=_cell(),
            final_nats=nats + by * (2 if placement == "pre-ln" else 1),
            first_nats=6.5,
            finite=True,
        )
        for by in jitter
    ]
    return PlacementGradients(
        placement=placement,
        ladder=Ladder(warmup_updates=2, peak_lrs=(4e-3,), runs=[runs[:1]], again={4e-3: runs}),
        courses=[
            course(2.0, factor * math.exp(by), 1.5, rank=(8.0, rank * math.exp(-by), 6.0))
            for by in jitter
        ],
    )


def _cell() -> Any:
    return SimpleNamespace(name="made up")


def test_how_many_times_worse_is_over_seeds_in_pairs() -> None:
    one, other = placed("post-ln", 4.0, 12.0, 2.0), placed("pre-ln", 4.1, 3.0, 4.0)
    found = times_worse(one, other, "spread, worst")
    assert math.exp(float(found.mean)) == pytest.approx(4.0)
    # Of the rank twice as bad: 1/2 over 1/4.
    assert math.exp(float(times_worse(one, other, "stable rank, worst").mean)) == pytest.approx(2.0)
    assert math.exp(float(times_worse(one, other, "spread, at the start").mean)) == pytest.approx(1)


def said(found: dict[str, PlacementGradients]) -> dict[str, Any]:
    config = replace(SMOKE, seeds=3, placements=tuple(found))
    return {one.name: one for one in claims(config, found, UNIGRAM)}


FOUND = {
    "post-ln": placed("post-ln", 4.0, 12.0, 2.0),
    "pre-ln": placed("pre-ln", 4.3, 3.0, 4.0),
    "peri-ln": placed("peri-ln", 3.9, 3.3, 3.9),
    "deepnorm": placed("deepnorm", 3.95, 9.0, 3.9),
}


def test_the_open_question_asks_for_both_halves_of_one_placement() -> None:
    made = said(FOUND)
    assert made["Pre-LN is better conditioned than Post-LN throughout"].verdict == "reproduced"
    calm = [replace(one, spread=np.array([2.0, 12.0, 1.2])) for one in FOUND["post-ln"].courses]
    at_end = said(FOUND | {"post-ln": replace(FOUND["post-ln"], courses=calm)})
    assert at_end["Pre-LN is better conditioned than Post-LN throughout"].conditions == (
        "spread, worst, stable rank, worst and stable rank, at the end; not spread, at the end"
    )
    assert made["as well conditioned as Pre-LN throughout"].conditions == (
        "not Post-LN and DeepNorm; but Peri-LN"
    )
    # Pre-LN is the standard of the first half, and too high for the second.
    assert made["ends as low as Post-LN"].conditions == "Peri-LN and DeepNorm; not Pre-LN"
    question = made["the open question, at this size"]
    assert question.conditions == "not Pre-LN and DeepNorm; but Peri-LN"
    assert "both: Peri-LN" in question.found
    less = np.subtract([3.9, 3.91, 3.89], [4.0, 4.01, 3.99])
    half = less.std(ddof=1) / np.sqrt(3) * stats.t.ppf(0.975, 2)
    assert f"Peri-LN, −0.100 ± {half:.3f} nats less Post-LN's" in question.found


def test_a_spread_that_is_sound_does_not_excuse_a_rank_that_falls() -> None:
    low = FOUND | {"peri-ln": placed("peri-ln", 3.9, 3.3, 1.0)}
    made = said(low)
    assert made["as well conditioned as Pre-LN throughout"].verdict == "contradicted"
    assert made["the open question, at this size"].verdict == "contradicted"


def test_what_has_not_learned_decides_nothing_but_the_start() -> None:
    lost = FOUND | {"post-ln": placed("post-ln", 5.99, 12.0, 2.0)}
    made = said(lost)
    assert made["Pre-LN is better conditioned than Post-LN throughout"].verdict == "undecided"
    assert "did not learn" in made["Pre-LN is better conditioned than Post-LN throughout"].found
    start = made["Pre-LN is better conditioned than Post-LN at the start"]
    assert "did not learn" not in start.found
    assert start.found.count("1.00 (") == 2


def test_looks_without_gradients_are_left_out_of_the_picture() -> None:
    gated = placed("rezero", 4.0, 3.0, 4.0)
    dark = [
        replace(one, spread=np.array([math.nan, 3.0, 1.5]), rank=np.array([math.nan, 4.0, 6.0]))
        for one in gated.courses
    ]
    (over, _) = figures({"rezero": replace(gated, courses=dark)})
    assert [panel.series[0].x for panel in over.panels] == [[3, 5], [3, 6]]
    assert over.panels[0].series[0].y == pytest.approx([3.0, 1.5])


def test_the_table_has_ranks_as_they_are() -> None:
    config = replace(SMOKE, seeds=3, placements=tuple(FOUND))
    made = ends(config, FOUND)
    row = dict(zip(made.columns, made.rows[0], strict=True))
    assert row["placement"] == "Peri-LN"
    assert row["stable rank, worst"] == pytest.approx(3.9)
    assert row["spread, worst"] == pytest.approx(3.3)
    unknown = ends(config, FOUND | {"pre-ln": replace(FOUND["pre-ln"], courses=[])})
    assert dict(zip(unknown.columns, unknown.rows[-1], strict=True))["spread, worst"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"placements": ("post-ln", "peri-ln")}, "standard=pre-ln must be among the placements"),
        ({"post": "pre-ln"}, "post and standard must be two placements"),
        ({"placements": ("post-ln", "pre-ln", "t-fixup")}, "not defined for a decoder alone"),
        ({"looks": 7}, "updates=600 must be a multiple of looks=7"),
        ({"conditioned_factor": 0.9}, "conditioned_factor must be at least 1"),
        ({"monitor_every": 0}, "monitor_every must be at least 1"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConditioningConfig(**changes)


def test_the_smallest_scale_looks_at_the_gradients_of_the_training_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    config = replace(SMOKE, seeds=1)
    pieces = Pieces(tmp_path)
    findings, page = run_study(
        STUDY, config, pieces, command="normscope study conditioning", scale="smoke"
    )
    judged = [path for path in (tmp_path / "runs").iterdir() if path.name.endswith("seed-2")]
    assert len(pieces.made) == len(judged) == 2
    for row in findings.data["placements"]:
        (seen,) = row["courses"]
        assert (seen["updates"], seen["looked_at"]) == ([1, 3, 5], (0, 3, 6))
        assert (seen["spread"] >= 1).all()
        assert (seen["stable_rank"] >= 1).all()
    run = RunFolder(next(path for path in judged if path.name.startswith("post-ln")))
    (post,) = [one for one in findings.data["placements"] if one["placement"] == config.post]
    # The monitor's first look is at the gradients that the training logs by parameter.
    first = next(one for one in run.events() if one["event"] == "initialisation")
    norms = [
        math.hypot(
            *(
                norm
                for name, norm in first["gradient_norms"].items()
                if f"blocks.{block}." in name and name.endswith("weight") and ".f." in name
            )
        )
        for block in range(SMOKE.blocks)
    ]
    assert post["courses"][0]["spread"][0] == pytest.approx(max(norms) / min(norms), rel=1e-5)
    # Ranks before the first update: by autograd of the task's own mean loss, and numpy's norms.
    of_run = load_run_config(run)
    corpus = LANGUAGE_MODEL.open(of_run)
    model = LANGUAGE_MODEL.build(of_run, corpus.tokeniser)
    batch = LANGUAGE_MODEL.batches(of_run, corpus)(0)
    matrices = [one for own in block_matrices(model) for one in own]
    gradients = torch.autograd.grad(batch.loss(batch.run(model)), matrices)
    ranks = [
        np.linalg.norm(one.numpy(), "fro") ** 2 / np.linalg.norm(one.numpy(), 2) ** 2
        for one in gradients
    ]
    assert post["courses"][0]["stable_rank"][0] == pytest.approx(np.mean(ranks), rel=1e-4)
    assert stable_ranks(run.path, [6]) != stable_ranks(run.path, [3])
    assert "well-conditioned" in page.read_text(encoding="utf-8")
    again = Pieces(tmp_path)
    run_study(STUDY, config, again, command="normscope study conditioning", scale="smoke")
    assert again.made == []
