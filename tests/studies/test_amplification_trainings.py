"""Trainings that are foretold: fits beside scikit-learn's, made-up trainings judged, and the
smallest scale.
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
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss as their_log_loss, roc_auc_score

import in_process
from normscope.data.opening import open_corpus
from normscope.errors import UserError
from normscope.tasks.translation import TRANSLATION
from normscope_studies.amplification_trainings import foretelling as f
from normscope_studies.amplification_trainings.config import SCALES, AmplificationTrainingsConfig
from normscope_studies.amplification_trainings.measure import measured_change, predicted_change
from normscope_studies.amplification_trainings.models import ClimbedModel
from normscope_studies.amplification_trainings.skill import AREA, ERROR, LOSS, foretell
from normscope_studies.amplification_trainings.study import STUDY, claims, run
from normscope_studies.engine import trainings as engine_trainings
from normscope_studies.engine.ladders import LadderRun
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: AmplificationTrainingsConfig = SCALES["smoke"]
UNIGRAM = 5.0
NAMES = ("a", "b", "c", "d", "e", "g", "h", "i")


def made_up(size: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(size, 2)) * (3.0, 0.2) + (1.0, -4.0)
    score = x[:, 0] - 5 * (x[:, 1] + 4)
    return x, score + draw.normal(size=size) > 1, score + 0.1 * draw.normal(size=size)


class TestFits:
    def test_a_logistic_regression_is_scikit_learn_s(self):
        """Their C is one over the penalty, of which neither has any on the offset."""
        x, labels, _ = made_up()
        scaled = (x - x.mean(0)) / x.std(0)
        theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(scaled, labels)
        asked = x[:7] + 0.3
        expected = theirs.decision_function((asked - x.mean(0)) / x.std(0))
        assert f.logistic(x, labels)(asked) == pytest.approx(expected, abs=1e-4)

    def test_labels_that_are_all_the_same_give_one_score(self):
        x, labels, _ = made_up(9)
        score = f.logistic(x, np.zeros_like(labels))(x[:3])
        assert score == pytest.approx([math.log(0.5 / 9.5)] * 3)

    def test_a_ridge_regression_is_scikit_learn_s(self):
        x, _, y = made_up()
        scaled = (x - x.mean(0)) / x.std(0)
        theirs = Ridge(alpha=1.0).fit(scaled, y)
        expected = theirs.predict((x[:7] - x.mean(0)) / x.std(0))
        assert f.ridge(x, y)(x[:7]) == pytest.approx(expected, abs=1e-9)

    def test_a_feature_that_is_the_same_everywhere_tells_nothing(self):
        x, labels, _ = made_up()
        flat = np.column_stack([x[:, 0], np.full(len(x), 3.0)])
        alone = f.logistic(x[:, :1], labels)(x[:4, :1])
        assert f.logistic(flat, labels)(flat[:4]) == pytest.approx(alone)

    def test_products_of_two(self):
        assert f.bent(np.array([[2.0, 3.0]])).tolist() == [[2.0, 3.0, 4.0, 6.0, 9.0]]

    def test_costs_are_scikit_learn_s(self):
        _, labels, score = made_up()
        odds = np.round(score, 0)  # with ties
        assert len(set(odds)) < len(odds)
        assert f.area_under_curve(odds, labels) == pytest.approx(roc_auc_score(labels, odds))
        chances = 1 / (1 + np.exp(-odds))
        assert f.log_loss(odds, labels) == pytest.approx(their_log_loss(labels, chances))
        assert math.isnan(f.area_under_curve(odds, np.ones_like(labels)))
        assert f.mean_error(np.array([1.0, 2.0]), np.array([2.0, 0.0])) == 1.5


def training(
    placement: str, blocks: int, rate: float, *, failed: bool, change: float, nats: float = 4.0
) -> f.EndedTraining:
    return f.EndedTraining(
        placement=placement,
        blocks=blocks,
        seed=1,
        peak_lr=rate,
        last_nats=nats,
        unigram_nats=UNIGRAM,
        failed=failed,
        change={f.MEASURED: change, f.PREDICTED: 100.0},
    )


def trainings(*, told: bool) -> list[f.EndedTraining]:
    """Of models whose trainings fail from a rate on that is one over the change's root, where the
    change tells it; else from rates that have nothing to do with it.
    """
    made = []
    for place, name in enumerate(NAMES):
        for depth in (2, 4):
            edge = 10 ** -(place % 4)
            change = edge**-2.0 if told else 10.0 ** (6 * ((place * 5 + depth) % 7) / 6)
            for rate in 10 ** np.linspace(-4.25, 1.25, 12):
                failed = rate > edge
                nats = UNIGRAM if failed else 3.0
                made.append(
                    training(name, depth, float(rate), failed=failed, change=change, nats=nats)
                )
    return made


class TestHeldOut:
    def test_a_placement_is_foretold_by_the_others(self):
        """What it did itself makes no difference to its own scores, and does to others'."""
        some = trainings(told=True)
        turned = [
            replace(one, failed=not one.failed) if one.placement == "a" else one for one in some
        ]
        way = f.WAYS[f.MEASURED]
        before, after = (f.held_out(each, way, lambda o: o.placement) for each in (some, turned))
        own = np.array([one.placement == "a" for one in some])
        assert np.array_equal(before.log_odds[own], after.log_odds[own])
        assert not np.allclose(before.log_odds[~own], after.log_odds[~own])

    def test_one_group_is_refused(self):
        with pytest.raises(ValueError, match="no others"):
            f.held_out(trainings(told=True), f.WAYS[f.RATE], lambda _: 0)

    def test_a_loss_beyond_all_bounds_counts_no_more_than_half_above_chance(self):
        far = training("a", 2, 1.0, failed=True, change=1.0, nats=1e6)
        assert far.counted_nats == 1.5 * UNIGRAM


def judged(some: list[f.EndedTraining], config=SMOKE) -> dict[str, tuple[str, str]]:
    config = replace(config, fewest_placements=6)
    found = {change: foretell(some, change) for change in (f.MEASURED, f.PREDICTED)}
    return {one.name: (one.verdict, one.found) for one in claims(config, found)}


FAILING = "The measured change foretells which trainings fail, beside the rate"
AREAS = "The measured change tells trainings that fail from others, beside the rate"
ENDS = "The measured change foretells how high trainings end, beside the rate"
DEPTHS = "The measured change foretells which trainings fail, beside the rate and depth"


class TestVerdicts:
    def test_a_change_that_tells_the_edge_is_found_out(self):
        found = judged(trainings(told=True))
        assert {found[name][0] for name in (FAILING, AREAS, ENDS, DEPTHS)} == {"reproduced"}
        # All predicted changes are the same, and tell nothing that the rate does not.
        verdict, said = found[
            "The predicted change foretells which trainings fail, beside the rate"
        ]
        assert verdict == "contradicted"
        assert "better by 0.000 (0.000 to 0.000)" in said

    def test_one_that_has_nothing_to_do_with_it_is_not(self):
        found = judged(trainings(told=False))
        assert "reproduced" not in {verdict for verdict, _ in found.values()}

    def test_the_numbers_are_those_of_resampled_placements(self):
        """Beside scipy's percentile interval of the same statistic, over other resamples."""
        some = trainings(told=True)
        found = foretell(some, f.MEASURED)
        value, low, high = found.gain("placements left out", f.MEASURED, f.RATE, LOSS, fewest=6)
        costs = {}
        for way in (f.MEASURED, f.RATE):
            odds = f.held_out(some, f.WAYS[way], lambda one: one.placement).log_odds
            failed = np.array([one.failed for one in some])
            chance = np.where(failed, 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds)))
            costs[way] = -np.log(chance)
        less = costs[f.RATE] - costs[f.MEASURED]
        means = [less[[one.placement == name for one in some]].mean() for name in NAMES]
        assert value == pytest.approx(np.mean(means))
        theirs = stats.bootstrap(
            (means,), np.mean, method="percentile", n_resamples=20_000, rng=1
        ).confidence_interval
        assert (low, high) == pytest.approx(tuple(theirs), rel=0.05)

    def test_of_too_few_placements_nothing_is_decided(self):
        few = [one for one in trainings(told=True) if one.placement in ("a", "b")]
        verdict, said = judged(few)[FAILING]
        assert verdict == "undecided"
        assert "of 2 placements, which are too few for an interval" in said

    def test_where_nothing_fails_no_area_is_told(self):
        none = [replace(one, failed=False) for one in trainings(told=True)]
        verdict, said = judged(none)[AREAS]
        assert verdict == "undecided"
        assert "too few trainings fail" in said

    def test_where_one_model_alone_learned_nothing_can_be_asked(self):
        one = [each for each in trainings(told=True) if (each.placement, each.blocks) == ("a", 2)]
        assert foretell(one, f.MEASURED) is None
        assert foretell([], f.MEASURED) is None
        assert judged(one)[FAILING] == (
            "undecided",
            "placements left out: too few models learned; depths left out: too few models learned",
        )

    def test_what_theory_does_not_follow_is_left_out_where_it_is_asked_about(self):
        some = [
            replace(one, change={f.MEASURED: 1.0}) if one.placement == "a" else one
            for one in trainings(told=True)
        ]
        assert "a" not in foretell(some, f.PREDICTED).rows_of
        assert "a" in foretell(some, f.MEASURED).rows_of


def model_of(nats: list[list[float]]) -> ClimbedModel:
    """nats: a row a seed."""
    cell: Any = SimpleNamespace(name="made up")
    return ClimbedModel(
        placement="pre-ln",
        blocks=2,
        peak_lrs=(1e-3, 1e-2, 1e-1),
        runs=[
            [LadderRun(cell=cell, final_nats=one, first_nats=9.0, finite=True) for one in row]
            for row in nats
        ],
        measured=[4.0, 9.0],
        predicted=None,
        unigram_nats=UNIGRAM,
    )


class TestModels:
    def test_a_training_has_failed_at_or_above_the_best_rate_alone(self):
        model = model_of([[5.0, 4.0, 4.97], [5.1, 4.1, 4.0]])
        assert model.learned
        assert (model.best_place, model.largest_lr) == (1, 1e-2)
        assert [one.failed for one in model.trainings()] == [False, False, True, *[False] * 3]
        assert [one.seed for one in model.trainings()] == [1, 1, 1, 2, 2, 2]
        assert [one.change for one in model.trainings()][::3] == [
            {f.MEASURED: 4.0},
            {f.MEASURED: 9.0},
        ]
        assert model.measured_mean == pytest.approx(6.0)

    def test_one_that_learned_at_no_rate_says_so(self):
        model = model_of([[5.0, 4.96, 5.0], [5.0, 4.97, 5.0]])
        assert not model.learned
        assert model.largest_lr is None


class TestChanges:
    def test_the_measured_one_is_that_of_a_step_of_adam_by_hand(self):
        """All weights of the run's first batch moved by the gradient's sign, in plain torch."""
        config = SMOKE.first("pre-ln", 1, 1)
        corpus = open_corpus(config.data)
        model = TRANSLATION.build(config, corpus.codec).double().eval()
        batch = TRANSLATION.batches(config, corpus)(0)
        before = batch.run(model)
        batch.loss(before).backward()
        rate = 1e-6
        with torch.no_grad():
            for weight in model.parameters():
                gradient = weight.grad
                # Adam's first step, whose epsilon small gradients feel.
                weight -= rate * gradient / (gradient.abs() + 1e-8)
            after = batch.run(model)
        by_hand = float((after - before.detach()).square().mean()) / rate**2
        assert measured_change(config) == pytest.approx(by_hand, rel=1e-3)

    def test_the_predicted_one_grows_as_post_ln_s_does(self):
        """About the cube of the depth, which Pre-LN's does not; and it has logits' units: rows of
        N(0, 1/d) leave the change of the output as it is.
        """
        sizes = {}
        for placement in ("post-ln", "pre-ln"):
            sizes[placement] = [
                predicted_change(SMOKE.training(placement, blocks), tokens=8, vocabulary=100)
                for blocks in (4, 8)
            ]
        assert sizes["post-ln"][1] / sizes["post-ln"][0] > 5
        assert sizes["pre-ln"][1] / sizes["pre-ln"][0] < 4
        assert sizes["post-ln"][0] > sizes["pre-ln"][0]

    def test_what_theory_does_not_follow_has_none(self):
        config = SMOKE.training("attn-res", 1)
        assert predicted_change(config, tokens=8, vocabulary=100) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"placements": ("pre-ln",)}, "placements: what is left out is foretold by the others"),
        ({"depths": (2,)}, "depths: what is left out"),
        ({"depths": (4, 2)}, "depths must be positive and rise"),
        ({"peak_lrs": (1e-3, 1e-3)}, "peak_lrs: give one or more different"),
        ({"warmup_updates": 250}, "warmup_updates must be less than updates=250"),
        ({"optimizer": "lion"}, "optimizer must be one of adam, sgd, muon"),
        ({"placements": ("pre-ln", "prelm")}, "unknown placement"),
        ({"fewest_placements": 1}, "fewest_placements must be at least 2"),
    ],
)
def test_settings_that_cannot_be_asked_about_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        AmplificationTrainingsConfig(**changes)


def test_text_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(UserError, match="prepare one with `normscope data prepare`"):
        run(AmplificationTrainingsConfig(corpus="nowhere"), Pieces(tmp_path))


def test_every_placement_of_the_scales_is_defined_and_predicted():
    for scale in ("cpu", "paper"):
        config = SCALES[scale]
        assert len(config.placements) >= config.fewest_placements
    for placement in SCALES["cpu"].placements:
        told = predicted_change(SMOKE.training(placement, 1), tokens=4, vocabulary=50)
        assert told is not None, placement


def _model(row: dict[str, Any]) -> tuple[str, int]:
    return row["placement"], row["blocks"]


def test_the_smallest_scale_trains_every_model_at_every_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_trainings, "run_cells", in_process.run_cells)
    command = "normscope study amplification-trainings"
    pieces = Pieces(tmp_path)
    findings, page = run_study(STUDY, SMOKE, pieces, command=command, scale="smoke")
    for blocks in SMOKE.depths:
        names = sorted(path.name for path in (tmp_path / f"blocks-{blocks}/runs").iterdir())
        assert len(names) == len(SMOKE.placements) * len(SMOKE.peak_lrs) * SMOKE.seeds
    looks = len(SMOKE.placements) * len(SMOKE.depths) * SMOKE.seeds
    assert len(pieces.made) == looks
    assert len(findings.data["runs"]) == looks * len(SMOKE.peak_lrs)
    assert {claim.verdict for claim in findings.claims} == {"undecided"}
    rows = findings.data["trainings"]
    unigram = findings.data["unigram_nats"]
    for row in rows:
        own = [one for one in rows if _model(one) == _model(row)]
        best = min(own, key=lambda one: one["last_nats"])
        slow = row["peak_lr"] < best["peak_lr"]
        assert row["failed"] == (not slow and row["last_nats"] >= unigram - 0.05)
    # Half of them fail: at a rate of ½ nothing is learned.
    assert [row["failed"] for row in rows] == [row["peak_lr"] == 0.5 for row in rows]
    gains = {
        (one["way"], one["other"], one["measure"], one["left_out"]): one["value"]
        for one in findings.data["gains"]
    }
    labels = np.array([row["failed"] for row in rows])
    assert len(gains) == 16
    assert gains[f.MEASURED, f.RATE, AREA, "depths left out"] <= 0
    # The rate alone tells them wholly: its area is 1.
    assert labels.any()
    assert not labels.all()
    ends = gains[f.MEASURED, f.RATE, ERROR, "placements left out"]
    assert abs(ends) < 1
    html = page.read_text(encoding="utf-8")
    assert "which are too few for an interval" in html
    assert {figure.name for figure in findings.figures} == {"losses", "changes"}
    again = Pieces(tmp_path)
    run_study(STUDY, SMOKE, again, command=command, scale="smoke")
    assert again.made == []
