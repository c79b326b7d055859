"""Predictions beside stacks as they are drawn, closed forms, published and measured numbers, and
invariants.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from draws import simulate
from kinds import examples
from normscope.model.embedding import sinusoids
from normscope.placement import named, register, registered
from normscope.placement.formulas.pre_and_post import PreLN
from normscope.placement.schemes import SCHEMES
from normscope.theory.loss import _softmaxes, loss_gradient
from normscope.theory.mixing import Products
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, predict
from normscope.theory.settings import InitialState, RepeatedTokens
from normscope.theory.stream import MomentStack, Part, StreamSetting
from placement.expected import described, expected

PREDICTED = {name: p for name, p in registered().items() if not expected(name).refused_by_theory}
ENCODER_ALONE = [
    name for name, placement in PREDICTED.items() if "encoder-only" in placement.models
]
TIED = ("deepnorm", "ngpt", "post-ln", "pre-ln", "scale-norm", "sub-ln", "t-fixup")
"""Where the output holds next to nothing of its own row, or nearly all."""
OTHERWISE_DRAWN = (
    ("deepnorm", "xavier-normal"),
    ("gpt2", "normal-0.02"),
    ("hybrid-norm", "megatron"),
    ("ngpt", "as-placement"),
    ("post-ln", "as-placement"),
    ("pre-ln", "fairseq-0.10"),
    ("pre-ln", "normal-by-width"),
    ("scale-norm", "as-placement"),
    ("t-fixup", "as-placement"),
)
UNTIED = [
    name
    for name, placement in PREDICTED.items()
    if (not placement.variant_of or "encoder-only" not in placement.models)
    and name not in TIED
    and name not in dict(OTHERWISE_DRAWN)
]
"""Of each family the one that others vary, unless it is simulated as an encoder-decoder below."""
QUERIES_WORSE_BY = 0.14
"""Their gradients hang on how far values lie apart, where a stream's few tokens differ from draw to
draw.
"""
CLOSED = [name for name in described() if expected(name).starts_closed]
"""Whose branches are multiplied by 0 at first."""
THEORY = ModelSetting(blocks=4, width=256, ffn_width=256, tokens=12, vocabulary=1000)
PAPER = ModelSetting(
    stack="encoder-decoder",
    blocks=3,
    width=256,
    ffn_width=512,
    heads=4,
    tokens=12,
    vocabulary=1000,
    setting="paper",
)


def assert_as_simulated(name, model, draws, *, q, p, gradient, seed=0):
    """q and gradients within those shares of themselves, p within that share of q."""
    found, drawn = predict(name, model), simulate(name, model, draws, seed)
    assert found.keys() == drawn.keys()
    for kind, stack in found.items():
        np.testing.assert_allclose(stack.q, drawn[kind].q, rtol=q, err_msg=f"{kind}: q")
        assert np.max(np.abs(stack.p - drawn[kind].p) / drawn[kind].q) < p, f"{kind}: p"
        for weight, norms in stack.gradient_norm.items():
            of = f"{kind}: {weight}"
            near = gradient + QUERIES_WORSE_BY if weight.endswith(("query", "key")) else gradient
            np.testing.assert_allclose(
                norms, drawn[kind].gradient_norm[weight], rtol=near, err_msg=of
            )
            # W_Q = W_K = 0 in the theory's setting: each is multiplied by the other.
            silent = expected(name).starts_closed or (
                model.setting == "theory" and weight in ("query", "key")
            )
            assert (min(norms) > 0) != silent, of


def assert_alike(found, expected, rel):
    for kind, stack in found.items():
        np.testing.assert_allclose(stack.q, expected[kind].q, rtol=rel)
        np.testing.assert_allclose(stack.p, expected[kind].p, rtol=rel)
        assert stack.gradient_norm.keys() == expected[kind].gradient_norm.keys()
        for weight, norms in stack.gradient_norm.items():
            np.testing.assert_allclose(norms, expected[kind].gradient_norm[weight], rtol=rel)


class TestAsSimulated:
    """Draws differ, by ⟨x, F(x)⟩ above all. Over three seeds the largest deviations were, in the
    theory's setting at 8 draws, 3 % in q, 3 % of q in p and 4 % in gradients (ResiDual 6 %). In the
    paper's at 4 to 5 draws: 6 %, 10 % and 12 %, HybridNorm 14 % (normed queries and keys:
    sharpening is approximate, most of all where attention is causal), reordered 14 % and 18 % (its
    queries and keys grow with the stream). Effects are larger: over four blocks Pre-LN's gradients
    fall by 40 %, those of Post-LN's values rise by half, and q grows fourfold."""

    @pytest.mark.parametrize("name", ENCODER_ALONE)
    def test_in_the_theorys_setting(self, name):
        assert_as_simulated(name, THEORY, 8, q=0.05, p=0.05, gradient=0.08)

    @pytest.mark.sampled(one_in=12)
    @pytest.mark.parametrize("name", UNTIED)
    def test_encoder_decoder_in_the_papers_setting(self, name):
        loose = expected(name).tokens_apart
        untied = replace(PAPER, tied=False)
        assert_as_simulated(
            name, untied, 4, q=0.09, p=0.16 if loose else 0.11, gradient=0.2 if loose else 0.15
        )

    @pytest.mark.sampled(one_in=5)
    @pytest.mark.parametrize("name", TIED)
    def test_with_a_tied_output_projection(self, name):
        """Between the two extremes, as in Admin and B2T, the own row's share of the softmax differs
        from token to token, and gradients are up to 25 % off."""
        assert_as_simulated(name, PAPER, 4, q=0.09, p=0.11, gradient=0.15)

    @pytest.mark.sampled(one_in=6)
    @pytest.mark.parametrize(("name", "setting"), OTHERWISE_DRAWN)
    def test_in_other_settings(self, name, setting):
        assert_as_simulated(name, replace(PAPER, setting=setting), 4, q=0.09, p=0.12, gradient=0.16)

    @pytest.mark.sampled(one_in=2)
    @pytest.mark.parametrize("name", ["post-ln", "pre-ln", "deepnorm", "hybrid-norm"])
    def test_causal_in_the_theorys_setting(self, name):
        """Early tokens mix few values. With the places as one mean, Post-LN's values are 17 %
        off.
        """
        assert_as_simulated(name, replace(THEORY, stack="decoder"), 8, q=0.06, p=0.06, gradient=0.1)

    @pytest.mark.sampled(one_in=3)
    @pytest.mark.parametrize("name", ["post-ln", "pre-ln", "sub-ln"])
    def test_without_a_mean_taken_off(self, name):
        model = replace(PAPER, stack="encoder", norm="rms-norm", tied=False)
        assert_as_simulated(name, model, 8, q=0.09, p=0.11, gradient=0.12)

    @pytest.mark.sampled(one_in=3)
    @pytest.mark.parametrize(
        ("name", "norm"),
        [("pre-ln", "dyt"), ("pre-ln", "derf"), ("mhc", "derf"), ("peri-ln", "derf")],
    )
    def test_with_a_squashing_norm(self, name, norm):
        assert_as_simulated(name, replace(THEORY, norm=norm), 8, q=0.03, p=0.03, gradient=0.07)

    @pytest.mark.parametrize("name", ["post-ln", "siamese-norm"])
    def test_a_squashing_norm_of_what_a_norm_has_bent(self, name):
        """SiameseNorm also adds a norm's output to what it was made of, forwards and back."""
        assert_as_simulated(name, replace(THEORY, norm="derf"), 8, q=0.13, p=0.12, gradient=0.1)


class TestLoss:
    def test_gradient_at_outputs(self):
        """By softmax over random rows, for outputs of q = 1 that have a product p; 500 draws of 8
        tokens, V = 1000.
        """
        model = replace(THEORY, tokens=8, width=64, ffn_width=64, blocks=6)
        stack = MomentStack(
            named("post-ln")(model.shape("encoder")),
            StreamSetting(tokens=8, weight_std=lambda *_: 1 / 8),
        )
        output = stack.forward([Part(Products(1.0, 0.2))])
        q = output.one
        p = output.two
        assert p > 0.8
        generator = torch.Generator().manual_seed(0)
        shared, own = (torch.randn(500, n, 64, generator=generator) for n in (1, 8))
        y = p**0.5 * shared + (q - p) ** 0.5 * own
        rows = torch.randn(500, 1000, 64, generator=generator) / 8
        softmax = (y @ rows.mT).softmax(-1)
        targets = torch.nn.functional.one_hot(
            torch.randint(1000, (500, 8), generator=generator), 1000
        )
        g = (softmax - targets) @ rows
        # A norm takes off what lies along the output: the mean of the rows' softmax.
        g = g - y * (g * y).sum(-1, keepdim=True) / y.square().sum(-1, keepdim=True)
        products = (g @ g.mT).mean(0).double() / 64
        found, along = loss_gradient(stack, model)
        assert along == 0.0  # no row of its own
        assert found.one == pytest.approx(float(products.trace()) / 8, rel=0.03)
        # Thousandths of a token's own square, but there are as many of them as pairs.
        assert found.two == pytest.approx(float(products.sum() - products.trace()) / 56, rel=0.3)

    def test_softmax_over_few_entries(self):
        """As ResiDual's output has them: logits of variance 3.2, two tokens' 3; e^3.2 / V is a
        third too much.
        """
        generator = torch.Generator().manual_seed(0)
        common, own, others = torch.randn(3, 4000, 1000, generator=generator, dtype=torch.float64)
        softmax, other = ((3**0.5 * common + 0.2**0.5 * rest).softmax(1) for rest in (own, others))
        assert _softmaxes(3.2, 1000, 0) == pytest.approx(
            float(softmax.square().sum(1).mean()), rel=0.03
        )
        found = _softmaxes(np.array([[3.2, 3.0]]), 1000, 0)[0, 1]
        assert found == pytest.approx(float((softmax * other).sum(1).mean()), rel=0.05)

    def test_variance_of_the_embedding(self):
        """What Admin's code profiles: about the mean over all elements, which positions move from
        0.
        """
        placement = named("admin-clinic")(PAPER.shape("encoder"))
        positions = sinusoids(12, 256).double()
        for dropout in (0.0, 0.2):
            stack = MomentStack(
                placement, StreamSetting(tokens=12, weight_std=lambda *_: 0.01, dropout=dropout)
            )
            stack.forward(InitialState("paper", placement).parts(12, RepeatedTokens()))
            # With dropout on, squares grow by 1 / (1 - dropout), and the mean over all elements
            # stays.
            expected = (1 + float(positions.square().mean())) / (1 - dropout) - float(
                positions.mean()
            ) ** 2
            assert stack.input_variance == pytest.approx(expected, rel=1e-5)
            assert stack.input_variance < 0.95 * stack.depths[0].one

    def test_admin_is_profiled_with_all_scales_at_1(self):
        """ω_2² = Var F_1 and ω_3² = Var F_1 + Var F_2, the variances of Post-LN's branches;
        whatever the dropout.
        """
        shape = PAPER.shape("encoder")
        for dropout in (0.0, 0.2):
            setting = StreamSetting(tokens=12, weight_std=lambda *_: 0.08, dropout=dropout)
            found = {
                name: MomentStack(named(name)(shape), setting) for name in ("admin", "post-ln")
            }
            for stack in found.values():
                stack.forward(InitialState("paper", stack.placement).parts(12, RepeatedTokens()))
            variances = found["post-ln"].variances
            assert found["admin"].profile == pytest.approx(variances, rel=1e-12)
            scale = found["admin"].profiled(
                "skip_scale", 1.0
            )  # of a sub-layer that would follow the last
            assert scale == pytest.approx(math.sqrt(sum(variances)), rel=1e-12)


WIDE = replace(THEORY, blocks=48, width=2**24, ffn_width=2**24)
"""Where what is of order 1/d has gone."""


class FeedForwardAlone(PreLN):
    """Pre-LN without attention."""

    name = "feed-forward-alone"

    def block(self, state, sublayers):
        return self.join(state, sublayers[-1], sublayers[-1].norm)


class PostFeedForwardAlone(FeedForwardAlone):
    """Post-LN without attention."""

    name = "post-feed-forward-alone"
    norm_epsilon = 0.0

    def join(self, x, sublayer, norm):
        return norm(x + sublayer(x))

    def finish(self, state, end):
        return state


class TestClosedForms:
    def test_pre_ln_by_the_recursion(self):
        """Elsewhere: at d = 512 and 16 tokens, 28.97 measured over 20 draws and 29.49 by the
        recursion.
        """
        n, q, p = 16, 1.0, 0.0
        expected = [q]
        for _ in range(24):
            gain = (1 + (n - 1) * p / q) / n
            q, p = q + gain, p + gain
            rho = p / q
            q, p = (
                q + 0.5,
                p + 0.5 * (math.sqrt(1 - rho**2) + rho * (math.pi - math.acos(rho))) / math.pi,
            )
            expected.append(q)
        found = predict("pre-ln", ModelSetting(blocks=24, width=512, ffn_width=512, tokens=n))[
            "encoder"
        ]
        assert found.q == pytest.approx(expected, rel=1e-4)
        assert found.q[-1] == pytest.approx(29.49, abs=0.01)
        assert found.q[-1] == pytest.approx(28.97, rel=0.02)

    def test_pre_ln_of_one_token_adds_1_and_a_half(self):
        found = predict("pre-ln", replace(THEORY, tokens=1))["encoder"]
        assert found.q == pytest.approx([1.0, 2.5, 4.0, 5.5, 7.0], rel=1e-4)

    def test_feed_forward_alone_falls_as_the_stream_grows(self, registry):
        """Measured elsewhere: W2's gradient goes as 1/√q_l; exactly so for one token, within 3 % as
        measured.
        """
        register(FeedForwardAlone)
        for tokens, tolerance in ((1, 2e-5), (16, 0.03)):
            found = predict("feed-forward-alone", replace(WIDE, tokens=tokens, vocabulary=10**9))[
                "encoder"
            ]
            assert found.q == pytest.approx([1 + block / 2 for block in range(49)], rel=1e-4)
            profile = np.array(found.gradient_norm["ffn_out"]) * np.sqrt(found.q[1:])
            np.testing.assert_allclose(profile / profile[0], 1, rtol=tolerance)

    def test_post_ln_of_feed_forwards_alone_is_flat(self, registry):
        """√(2/3) of a norm times √(3/2) of a residual feed-forward: the gain the paper's appendix F
        leaves out.
        """
        register(PostFeedForwardAlone)
        found = predict("post-feed-forward-alone", replace(WIDE, tokens=1))["encoder"]
        norms = found.gradient_norm["ffn_out"]
        assert norms == pytest.approx([norms[-1]] * 48, rel=1e-5)

    @pytest.mark.parametrize(
        ("blocks", "first", "last"), [(6, 2.55, 1.16), (12, 2.57, 0.79), (24, 2.54, 0.53)]
    )
    def test_pre_ln_as_measured_at_512(self, blocks, first, last):
        """Measured elsewhere: the first and the last W2's gradient of single draws."""
        norms = predict("pre-ln", ModelSetting(blocks=blocks, tokens=16))["encoder"].gradient_norm[
            "ffn_out"
        ]
        assert norms[0] / norms[-1] == pytest.approx(first / last, rel=0.15)

    def test_post_ln_as_measured_at_512(self):
        """The same of 12 blocks, first, middle and last. In deeper stacks tokens become one, and
        the gradients below are predicted too small, by 10 % in 24 blocks at d = 256."""
        norms = predict("post-ln", ModelSetting(blocks=12, tokens=16))["encoder"].gradient_norm[
            "ffn_out"
        ]
        for block, measured in ((0, 2.43), (5, 2.30), (11, 2.33)):
            assert norms[block] / norms[-1] == pytest.approx(measured / 2.33, rel=0.15)

    @pytest.mark.parametrize("name", ["sandwich", "peri-ln", "reordered", "olmo-2"])
    def test_a_norm_after_every_branch_adds_2_a_block(self, name):
        found = predict(name, THEORY)["encoder"]
        assert found.q == pytest.approx([1.0, 3.0, 5.0, 7.0, 9.0], rel=1e-3)
        assert found.shares["attention"] == pytest.approx([1 / 9] * 4, rel=2e-3)

    @pytest.mark.parametrize(
        "name", ["post-ln", "deepnorm", "admin", "keel", "b2t", "branch-norm", "residual", "ngpt"]
    )
    def test_a_norm_after_every_sum_keeps_q_at_1(self, name):
        assert predict(name, THEORY)["encoder"].q == pytest.approx([1.0] * 5, rel=1e-4)

    @pytest.mark.parametrize("name", CLOSED)
    @pytest.mark.parametrize("model", [THEORY, PAPER], ids=["theory", "paper"])
    def test_branches_that_start_closed(self, name, model):
        for stack in predict(name, model).values():
            # A quotient of two sums, of which some processors round the last bit.
            assert list(stack.shares["embedding"]) == pytest.approx([1.0], rel=1e-15)
            assert all(
                list(norms) == [0.0] * model.blocks for norms in stack.gradient_norm.values()
            )

    @pytest.mark.parametrize(
        "model",
        [THEORY, PAPER, replace(THEORY, stack="decoder")],
        ids=["theory", "paper", "decoder"],
    )
    @pytest.mark.parametrize(
        ("name", "same_as"), [("pre-to-post", "pre-ln"), ("branch-norm", "rezero")]
    )
    def test_formulas_that_meet_at_first(self, name, same_as, model):
        found, expected = predict(name, model), predict(same_as, model)
        for kind in found:
            for weight, norms in expected[kind].gradient_norm.items():
                assert found[kind].gradient_norm[weight] == pytest.approx(norms, rel=1e-12)
            if name == "pre-to-post":
                assert found[kind].q == pytest.approx(expected[kind].q, rel=1e-12)

    def test_a_history_of_sums_stays_as_short_as_its_groups(self):
        """2 values after the first block, read as a mean of x_0 and one branch: a quarter of q_0 +
        q_branch. In a stack of 24 blocks attn-res reads 48 values and attn-res-block 8 at most, so
        its means are larger."""
        one = {"blocks": 1, "tokens": 1}
        for name in ("attn-res", "attn-res-block"):
            assert predict(name, replace(THEORY, **one))["encoder"].q[-1] == pytest.approx(
                0.5, rel=1e-3
            )
        deep = replace(THEORY, blocks=24)
        full, block = (
            predict(name, deep)["encoder"].q[-1] for name in ("attn-res", "attn-res-block")
        )
        assert block > 4 * full


TEXTS = st.builds(
    RepeatedTokens,
    same_within=st.floats(0, 0.2),
    same_apart=st.floats(0, 0.2),
    asked_within=st.floats(0, 0.1),
    asked_apart=st.floats(0, 0.1),
)
MODELS = st.builds(
    ModelSetting,
    stack=st.sampled_from(["encoder", "decoder", "encoder-decoder"]),
    blocks=st.integers(1, 9),
    width=st.integers(1, 40).map(lambda x: 8 * x),
    ffn_width=st.integers(1, 600),
    heads=st.sampled_from([1, 2, 4]),
    tokens=st.integers(1, 40),
    vocabulary=st.integers(2, 50_000),
    setting=st.sampled_from(sorted(SCHEMES)),
    activation=st.sampled_from(["relu", "relu", "gelu", "swiglu"]),
    norm=st.sampled_from(["layer-norm", "rms-norm"]),
    tied=st.booleans(),
    source_tokens=st.none() | st.integers(1, 40),
    sequences=st.integers(1, 300),
    dropout=st.sampled_from([0.0, 0.3]),
    label_smoothing=st.sampled_from([0.0, 0.1]),
    source=TEXTS,
    target=TEXTS,
)


class TestInvariants:
    @examples(150)
    @given(name=st.sampled_from(sorted(PREDICTED)), model=MODELS)
    def test_numbers_are_sound(self, name, model):
        if named(name).models == ("encoder-decoder",):
            model = replace(model, stack="encoder-decoder")
        found = predict(name, model)
        for kind, stack in found.items():
            assert len(stack.q) == len(stack.p) == model.blocks + 1
            assert all(0 < q < math.inf for q in stack.q)
            assert all(abs(p) <= q * (1 + 1e-9) for q, p in zip(stack.q, stack.p, strict=True))
            weights = {"query", "key", "value", "output", "ffn_in", "ffn_out"}
            weights |= {"ffn_gate"} if model.activation == "swiglu" else set()
            if kind == "decoder" and model.stack == "encoder-decoder":
                weights |= {f"cross_{weight}" for weight in ("query", "key", "value", "output")}
            assert stack.gradient_norm.keys() == weights
            for norms in stack.gradient_norm.values():
                assert len(norms) == model.blocks
                assert all(0 <= norm < math.inf for norm in norms)
            assert sum(map(sum, stack.shares.values())) == pytest.approx(1, rel=1e-9)
            assert all(share >= 0 for shares in stack.shares.values() for share in shares)
            assert all(
                len(shares) == model.blocks
                for part, shares in stack.shares.items()
                if part != "embedding"
            )
        assert_alike(predict(name, model), found, rel=0)

    @examples(30)
    @given(name=st.sampled_from(ENCODER_ALONE), vocabulary=st.integers(2, 10**6))
    def test_the_stream_knows_no_vocabulary(self, name, vocabulary):
        found, expected = (
            predict(name, replace(THEORY, vocabulary=vocabulary))["encoder"],
            predict(name, THEORY)["encoder"],
        )
        np.testing.assert_array_equal(found.q, expected.q)
        np.testing.assert_array_equal(found.p, expected.p)

    @pytest.mark.parametrize("name", ["pre-ln", "post-ln", "sub-ln"])
    def test_gelu_lies_near_relu(self, name):
        found, relu = (
            predict(name, replace(THEORY, activation=a))["encoder"] for a in ("gelu", "relu")
        )
        assert list(found.q) != list(relu.q) or name == "post-ln"
        assert found.q == pytest.approx(relu.q, rel=0.25)
        assert found.gradient_norm["ffn_out"] == pytest.approx(
            relu.gradient_norm["ffn_out"], rel=0.25
        )
        assert list(found.gradient_norm["ffn_out"]) != list(relu.gradient_norm["ffn_out"])


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            *(
                ({name: 0}, f"{name} must be at least 1, got 0")
                for name in ("blocks", "ffn_width", "heads", "tokens")
            ),
            ({"width": -2}, "width must be at least 1, got -2"),
            ({"vocabulary": 1}, "vocabulary must be at least 2, got 1"),
            ({"width": 10, "heads": 4}, "width=10 must be a multiple of heads=4"),
            ({"width": 2}, "width must be even and at least 4, for its sinusoids, got 2"),
            ({"width": 9}, "width must be even and at least 4, for its sinusoids, got 9"),
            (
                {"setting": "bert"},
                f"setting must be one of {', '.join((*SCHEMES, 'as-placement'))}, got 'bert'",
            ),
            (
                {"stack": "both"},
                "stack must be one of encoder, decoder, encoder-decoder, got 'both'",
            ),
            ({"activation": "tanh"}, "activation must be one of relu, gelu, swiglu, got 'tanh'"),
            (
                {"norm": "batch-norm"},
                "norm must be one of layer-norm, rms-norm, dyt, derf, got 'batch-norm'",
            ),
        ],
    )
    def test_of_a_model(self, changes, message):
        with pytest.raises(ValueError) as caught:
            ModelSetting(**changes)
        assert str(caught.value) == message

    def test_of_a_placement(self):
        with pytest.raises(ValueError, match="unknown placement 'middle-ln'"):
            predict("middle-ln", THEORY)
        with pytest.raises(ValueError, match="'t-fixup' is not defined for encoder-only models"):
            predict("t-fixup", THEORY)

    @pytest.mark.parametrize("name", sorted(set(registered()) - set(PREDICTED)))
    def test_of_a_placement_that_theory_does_not_follow(self, name):
        for stack in ("encoder", "decoder", "encoder-decoder"):
            with pytest.raises(Unpredictable, match=expected(name).refused_by_theory):
                predict(name, ModelSetting(stack=stack))

    @pytest.mark.parametrize(
        "join",
        [
            lambda self, x, sublayer, norm: norm(math.inf + sublayer(x)),
            lambda self, x, sublayer, norm: norm(math.inf * x + sublayer(x)),
            lambda self, x, sublayer, norm: norm(0 * x + 0 * sublayer(x)),
            lambda self, x, sublayer, norm: norm(x / 0 + sublayer(x)),
        ],
    )
    def test_of_numbers_that_no_mean_square_has(self, registry, join):
        register(type("Odd", (FeedForwardAlone,), {"name": "odd", "join": join}))
        with pytest.raises(Unpredictable, match="infinite numbers or a stream of 0"):
            predict("odd", ModelSetting(blocks=2))
