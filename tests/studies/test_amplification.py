"""Small changes over depth and singular values of Jacobians: by hand, made up, and the smallest
scale.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from markupsafe import escape
from scipy import stats

from normscope.measure import Point
from normscope.theory.predict import Update, predict
from normscope_studies.amplification import measure, study
from normscope_studies.amplification.claims import (
    ORDERS,
    DepthGrowth,
    claims,
    near_one,
    vanished,
)
from normscope_studies.amplification.config import SCALES, AmplificationConfig
from normscope_studies.amplification.measure import ALL, MATRICES, RANDOM, SMALL_RATES
from normscope_studies.amplification.study import STUDY, growths
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: AmplificationConfig = SCALES["smoke"]
THEORY = {"initialisation": "theory", "tokens": 1, "vocabulary": 8}


def drawn(placement: str, *, width: int = 12, blocks: int = 1, tokens: int = 1, seed: int = 1):
    shape = replace(SMOKE, width=width).shape(blocks)
    return measure.DrawnEncoder(
        placement, shape, initialisation="theory", tokens=tokens, vocabulary=8, seed=seed
    )


def matrices_of(one: measure.DrawnEncoder) -> tuple[np.ndarray, ...]:
    """W_V, W_1 and W_2 of the only block."""
    named = {name: m.weight for s in one.stack.sublayers() for name, m in s.f.matrices()}
    return tuple(named[name].detach().numpy() for name in ("value", "ffn_in", "ffn_out"))


def normed(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def norm_jacobian(x: np.ndarray) -> np.ndarray:
    """Of LayerNorm, eq. (28) of Xiong et al. 2020 with its epsilon."""
    width, power = len(x), x.var() + 1e-5
    y = (x - x.mean()) / np.sqrt(power)
    centred = np.eye(width) - np.ones((width, width)) / width
    return (centred - np.outer(y, y) / width) / np.sqrt(power)


class TestPostLnOfOneBlockByHand:
    """One token, whose attention is x W_V: every step is written out in numpy."""

    def test_its_jacobian(self):
        one = drawn("post-ln")
        value, ffn_in, ffn_out = matrices_of(one)
        x = one.inputs_ND[0].numpy()
        summed = x + value @ x
        state = normed(summed)
        units = ffn_in @ state
        second = state + ffn_out @ np.maximum(units, 0)
        through = np.eye(12) + ffn_out @ np.diag(units > 0) @ ffn_in
        by_hand = norm_jacobian(second) @ through @ norm_jacobian(summed) @ (np.eye(12) + value)
        found = measure.singular_values(
            "post-ln", one.stack.placement.stack, initialisation="theory", tokens=1, seed=1
        )
        assert found == pytest.approx(np.linalg.svd(by_hand)[1], rel=1e-9, abs=1e-9)
        assert list(found) == sorted(found, reverse=True)

    def test_a_small_step(self):
        """A step of W_V alone, to first order."""
        one = drawn("post-ln")
        value, ffn_in, ffn_out = matrices_of(one)
        x = one.inputs_ND[0].numpy()
        step = 1e-6 * np.random.default_rng(1).normal(size=value.shape)
        summed = x + value @ x
        units = ffn_in @ normed(summed)
        second = normed(summed) + ffn_out @ np.maximum(units, 0)
        through = np.eye(12) + ffn_out @ np.diag(units > 0) @ ffn_in
        moved = norm_jacobian(second) @ through @ norm_jacobian(summed) @ step @ x
        weights = dict(one.stack.named_parameters())
        (name,) = (n for n, w in weights.items() if np.array_equal(w.detach().numpy(), value))
        before = {n: w.detach().clone() for n, w in one.stack.named_parameters()}
        found = measure.changes_at(
            one.stack,
            lambda: one.output(one.inputs_ND),
            {name: torch.from_numpy(step)},
            {"y": Point(one.stack)},
        )
        assert found["y"] == pytest.approx((moved**2).mean(), rel=1e-4)
        assert all(torch.equal(before[n], w) for n, w in one.stack.named_parameters())


def test_rezero_is_the_identity_before_training_whatever_its_weights():
    for seed in (1, 2):
        values = measure.singular_values(
            "rezero",
            SMOKE.jacobian_shape(5),
            initialisation="as-placement",
            tokens=3,
            seed=seed,
        )
        assert values == [1.0] * (3 * SMOKE.jacobian_width)


def test_a_random_change_of_one_block_of_post_ln_has_the_size_that_was_worked_out():
    """One token and rate η: W_V moves x W_V by η² d an entry, the norm halves it; W_2 reads ½ and
    W_1 adds ½ through ReLU, the skip keeps the rest, and what the norm reads has 3/2.
    """
    width, draws = 256, 40
    shape = replace(SMOKE, width=width).shape(1)
    found = [
        measure.changes("post-ln", shape, (RANDOM,), (MATRICES,), **THEORY, seed=seed)
        for seed in range(draws)
    ]
    outputs = np.array([one[MATRICES][RANDOM]["output"] for one in found])
    after_attention = width / 2
    expected = (1.5 * after_attention + width * (0.5 + 0.5)) / 1.5
    error = outputs.std(ddof=1) / math.sqrt(draws)
    # LayerNorm takes 2 of the 256 directions away, and its divisor scatters.
    assert abs(outputs.mean() - expected) < 3 * error + 0.02 * expected
    stream = np.array([one[MATRICES][RANDOM]["stream"] for one in found])
    assert np.all(stream[:, 0] == 0)
    assert stream[:, 1] == pytest.approx(outputs)


class TestWhatMoves:
    def test_matrices_and_gates_alone_or_norms_and_shifts_too(self):
        one = drawn("rezero", blocks=2)
        one.train(MATRICES)
        asked = {name for name, weight in one.stack.named_parameters() if weight.requires_grad}
        assert sum("gate" in name for name in asked) == 2
        assert not any(name.endswith("bias") for name in asked)
        one.train(ALL)
        every = {name for name, weight in one.stack.named_parameters() if weight.requires_grad}
        assert asked < every
        # Two sub-layers' worth of biases; W_O is the identity in this setting, and stays.
        still = {name for name, _ in one.stack.named_parameters()} - every
        assert len(still) == 2
        assert all("output" in name and name.endswith("weight") for name in still)

    def test_a_step_of_adam_is_the_sign_of_the_gradient(self):
        one = drawn("pre-ln", tokens=3)
        one.train(MATRICES)
        step = measure.step_of(one.stack, "adam", lambda _: one.loss())
        one.loss().backward()
        for name, weight in one.stack.named_parameters():
            if weight.requires_grad and weight.grad.abs().min() > 1e-5:
                expected = -SMALL_RATES["adam"] * weight.grad.sign()
                assert torch.allclose(step[name], expected, rtol=2e-3), name
        assert len(step) == sum(w.requires_grad for w in one.stack.parameters())

    def test_norms_moved_too_undo_deepnorm(self):
        """Its branches are scaled down with depth; its norms are not, and their steps add up."""
        outputs = {}
        for blocks in (4, 16):
            shape = replace(SMOKE, width=64).shape(blocks)
            found = [
                measure.changes(
                    "deepnorm", shape, (RANDOM,), (MATRICES, ALL),
                    initialisation="theory", tokens=4, vocabulary=8, seed=seed,
                )
                for seed in range(4)
            ]  # fmt: skip
            for move in (MATRICES, ALL):
                outputs[move, blocks] = np.mean([one[move][RANDOM]["output"] for one in found])
        assert outputs[MATRICES, 16] / outputs[MATRICES, 4] == pytest.approx(1.0, abs=0.25)
        # A gain and a shift of mean square 1 each, of two norms a block.
        added = outputs[ALL, 16] - outputs[MATRICES, 16]
        assert 0.5 * 4 * 16 < added < 2 * 4 * 16


def growth(placement, update, values, predicted=None, moved=MATRICES) -> DepthGrowth:
    """values: (draws, depths)."""
    output = np.asarray(values, dtype=np.float64)
    stream = np.ones((len(output), 4))
    return DepthGrowth(
        placement=placement,
        update=update,
        moved=moved,
        depths=SMOKE.depths,
        output=output,
        stream=stream,
        predicted=None if predicted is None else np.asarray(predicted),
        predicted_stream=None if predicted is None else np.ones(4),
    )


def spectra_of(values) -> dict:
    sizes = [(name, blocks) for name in SMOKE.placements for blocks in SMOKE.jacobian_depths]
    return {size: [np.asarray(values(*size), dtype=np.float64)] * 2 for size in sizes}


FLAT = spectra_of(lambda placement, blocks: np.ones(48))


def judged(grown, spectra=FLAT) -> dict[str, tuple[str, str]]:
    return {c.name: (c.verdict, c.conditions) for c in claims(SMOKE, grown, spectra)}


class TestVerdicts:
    """Over 2 and 4 blocks the logarithm of the sub-layers grows by ln 8 / ln 4 = 1.5."""

    @pytest.mark.parametrize(
        ("placement", "update", "factor", "verdict"),
        [
            ("post-ln", RANDOM, 2.0, "reproduced"),
            ("post-ln", RANDOM, 8.0, "contradicted"),
            ("pre-ln", RANDOM, 1.5, "reproduced"),
            ("pre-ln", RANDOM, 2.0, "contradicted"),
            ("deepnorm", "sgd", 1.0, "reproduced"),
            ("deepnorm", "sgd", 2.0, "contradicted"),
        ],
    )
    def test_orders_as_they_are_stated(self, placement, update, factor, verdict):
        values = [[1.0, factor], [1.1, 1.1 * factor], [0.9, 0.9 * factor]]
        title = {"post-ln": "Post-LN: O(N)", "pre-ln": "Pre-LN: O(log N)"}.get(
            placement, "DeepNorm: O(1)"
        )
        found = judged([growth(placement, update, values)])
        assert found[f"{title}, as stated"][0] == verdict

    def test_other_changes_are_judged_apart(self):
        same = [[1.0, 2.0], [1.1, 2.2], [0.9, 1.8]]
        faster = [[1.0, 8.0], [1.1, 8.8], [0.9, 7.2]]
        found = judged(
            [
                growth("post-ln", RANDOM, same),
                growth("post-ln", "sgd", same),
                growth("post-ln", "adam", faster),
                growth("post-ln", RANDOM, faster, moved=ALL),
            ]
        )
        assert found["Post-LN: O(N), as stated"] == ("reproduced", "")
        assert found["Post-LN: O(N), other changes"] == (
            "contradicted",
            "not Adam and a random change with norms and shifts; but SGD",
        )

    def test_draws_that_differ_decide_nothing(self):
        found = judged([growth("post-ln", RANDOM, [[1.0, 1.0], [1.0, 2.0], [1.0, 5.0]])])
        assert found["Post-LN: O(N), as stated"][0] == "undecided"

    def test_a_prediction_is_held_against_what_was_measured(self):
        values = [[1.0, 2.0], [1.1, 2.2], [0.9, 1.8]]
        right, wrong = ([growth("rezero", "adam", values, told)] for told in ([3, 6], [3, 3]))
        name = "Exponents are predicted, Adam"
        assert (judged(right)[name][0], judged(wrong)[name][0]) == ("reproduced", "contradicted")
        assert judged(right)["The stream's change is predicted, Adam"][0] == "reproduced"
        assert name not in judged([growth("rezero", "adam", values)])

    def test_the_isometry_of_rezero_turns(self):
        name = "ReZero: dynamical isometry"
        assert judged([])[name] == ("reproduced", "")
        off = spectra_of(lambda placement, blocks: np.r_[1.001, np.ones(47)])
        assert judged([], off)[name][0] == "contradicted"

    def test_vanishing_and_well_conditioned_singular_values_turn(self):
        deep = "Post-LN: in a deep stack singular values vanish"
        shallow = "Post-LN: a shallow stack is near isometry"
        others = "Others are well-conditioned before training"
        assert [judged([])[name][0] for name in (deep, shallow, others)] == [
            "contradicted",
            "reproduced",
            "reproduced",
        ]
        # The last norm takes 6 of 48 by itself, and at least 5 more are a tenth.
        for gone, verdict in ((10, "contradicted"), (11, "reproduced")):
            found = judged([], spectra_of(lambda p, b, n=gone: np.r_[np.ones(48 - n), [1e-9] * n]))
            assert found[deep][0] == verdict
            assert found[others][0] == "contradicted"
        half = spectra_of(lambda placement, blocks: np.r_[[3.0] * 25, [1.0] * 23])
        assert judged([], half)[shallow][0] == "contradicted"


def test_shares_of_singular_values():
    values = np.array([4.0, 1.9, 1.0, 0.51, 0.49, 5e-7, 4e-7])
    assert near_one(values) == 3 / 7
    # 4 / 2²³ is 4.77e-7.
    assert vanished(values) == 1 / 7


def test_orders_over_depth():
    assert ORDERS["post-ln"].growth((6, 12, 24)) == pytest.approx([1, 2, 4])
    assert ORDERS["pre-ln"].growth((6, 12)) == pytest.approx([1, math.log(24) / math.log(12)])
    assert ORDERS["deepnorm"].exponent((6, 12, 48)) == 0


def test_an_exponent_is_that_of_the_mean_over_draws():
    values = np.random.default_rng(1).lognormal(size=(6, 4))
    one = replace(growth("post-ln", RANDOM, values), depths=(6, 12, 24, 48))

    def fitted(rows) -> float:
        return stats.linregress(np.log(one.depths), np.log(np.mean(rows, 0))).slope

    without = [fitted(np.delete(values, draw, 0)) for draw in range(6)]
    pseudo = 6 * fitted(values) - 5 * np.array(without)
    interval = stats.t.interval(0.95, 5, loc=pseudo.mean(), scale=stats.sem(pseudo))
    assert (one.exponent.low, one.exponent.high) == pytest.approx(interval)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("amplification")


@pytest.fixture(scope="module")
def found(folder):
    return run_study(
        STUDY, SMOKE, Pieces(folder), command="normscope study amplification", scale="smoke"
    )


class TestStudy:
    def test_the_page_says_what_the_data_does(self, folder, found):
        findings, page = found
        html = page.read_text(encoding="utf-8")
        results = json.loads((folder / "results.json").read_text("utf-8"))
        (own,) = (
            one
            for one in results["growth"]
            if (one["placement"], one["update"], one["moved"]) == ("pre-ln", "adam", MATRICES)
        )
        means = np.mean(own["changes"], axis=0)
        assert np.array(own["changes"]).shape == (SMOKE.draws, len(SMOKE.depths))
        slope = math.log(means[1] / means[0]) / math.log(2)
        # The jackknife takes the bias of the logarithm of a mean away.
        without = [
            math.log(np.divide(*np.delete(own["changes"], draw, 0).mean(0)[::-1])) / math.log(2)
            for draw in range(SMOKE.draws)
        ]
        expected = SMOKE.draws * slope - (SMOKE.draws - 1) * np.mean(without)
        assert own["exponent"]["mean"] == pytest.approx(expected, rel=1e-4)
        (claim,) = (c for c in findings.claims if c.name == "Exponents are predicted, Adam")
        assert f"Pre-LN: {expected:.2f} ± " in claim.found
        told = predict("pre-ln", SMOKE.model(4), update=Update(optimizer="adam", rate=1.0))
        assert own["predicted_changes"][1] == pytest.approx(told["encoder"].change.output, rel=1e-5)
        assert {figure.name for figure in findings.figures} == {"growth", "stream", "jacobian"}
        for one in findings.claims:
            assert f'<span class="word">{one.verdict}</span></span> – {escape(one.name)}' in html
        assert "Scale smoke is so small" in html
        assert findings.conditions.keys() >= {
            "Gradient normalisation",
            "Logarithm",
            "Tokens",
            "Draws",
            "Spread",
        }

    def test_rezero_is_an_isometry_at_every_depth(self, found):
        findings, _ = found
        own = [one for one in findings.data["jacobians"] if one["placement"] == "rezero"]
        assert [one["blocks"] for one in own] == list(SMOKE.jacobian_depths)
        assert all(quantiles == [1.0] * 5 for one in own for quantiles in one["quantiles"])

    def test_more_draws_measure_the_new_ones_alone(self, folder, found):
        more = Pieces(folder)
        run_study(STUDY, replace(SMOKE, draws=4), more, command="")
        assert len(more.made) == len(SMOKE.placements) * len(SMOKE.depths)
        assert all(name.endswith("draw-4") for name in more.made)

    def test_what_theory_refuses_is_measured_and_said(self):
        config = replace(SMOKE, placements=("attn-res",), updates=(RANDOM,))
        one = {"output": 1.0, "stream": [0.0, 1.0]}
        made = {
            ("attn-res", blocks): [{m: {RANDOM: one} for m in config.moves}] * 3
            for blocks in config.depths
        }
        grown, refused = growths(config, made)
        assert [each.predicted for each in grown] == [None, None]
        assert list(refused) == ["attn-res"]
        assert "Not predicted" in study._left_out(refused)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updates": ("lion",)}, "updates: lion is not one"),
        ({"moves": ("gains",)}, "moves: gains is not one"),
        ({"depths": (6,)}, "an exponent takes two or more"),
        ({"depths": (12, 6)}, "depths must be positive and rise"),
        ({"draws": 2}, "draws must be at least 3"),
        ({"edge": 0.0}, "edge must be positive"),
        ({"placements": ("post-ln", "post-ln")}, "placements: give one or more different"),
        ({"placements": ("prelm",)}, "unknown placement"),
        ({"placements": ("t-fixup",)}, "not defined for encoder-only"),
        ({"jacobian_width": 18}, "multiple of 4, its heads"),
        ({"initialisation": "small"}, "initialisation must be one of"),
    ],
)
def test_settings_that_cannot_be_measured_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SMOKE, **changes)
