"""What holds for a placement whatever its weights: scales that drop out, and placements that meet
at an end.
"""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from kinds import examples
from normscope.model import (
    Context,
    EncoderDecoder,
    Layout,
    ModelConfig,
    Stack,
    StackConfig,
    renormalise,
    unit_vectors,
)
from normscope.placement import StackShape, named
from stacks import FFN_WIDTH, HEADS, SCHEDULED, WIDTH, schedule, small_model, small_stack

SAME = {"rtol": 1e-12, "atol": 1e-12}
LAYOUT = Layout(torch.tensor([4, 1, 3]))
KINDS = pytest.mark.parametrize("kind", ["encoder", "decoder"])
SEEDS = st.integers(0, 2**31 - 1)
SCALES = st.floats(-12, 12).map(math.exp)


def inputs(seed: int = 5, width: int = WIDTH) -> Tensor:
    return torch.randn(8, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@torch.no_grad()
def output(stack: Stack, x_ND: Tensor) -> Tensor:
    causal = stack.placement.stack.kind == "decoder"
    return stack(x_ND, Context(layout=LAYOUT, causal=causal))


def initial_stack(placement: str, kind: str, norm: str = "layer-norm") -> Stack:
    """3 blocks as they are built, in float64."""
    torch.manual_seed(3)
    shape = StackShape(
        kind=kind, width=WIDTH, ffn_width=FFN_WIDTH, heads=HEADS, **{f"{kind}_blocks": 3}
    )
    return Stack(named(placement)(shape), StackConfig(norm=norm)).double()


@torch.no_grad()
def without_branches(stack: Stack) -> Stack:
    """The stack with F = 0 everywhere: last matrices and biases of F are 0."""
    for name, parameter in stack.named_parameters():
        if any(f".f.{last}." in name for last in ("output", "ffn_out")):
            parameter.zero_()
    return stack


@torch.no_grad()
def with_weights_of(stack: Stack, other: Stack, **renamed: str) -> Stack:
    """The stack with the other's parameters, under its own names of norms: `renamed` is {other's:
    its}.
    """
    weights = {}
    for name, value in other.named_parameters():
        for old, new in renamed.items():
            name = name.replace(f".norm.{old}.", f".norm.{new}.")
        weights[name] = value
    own = dict(stack.named_parameters())
    assert own.keys() <= weights.keys()
    for name, parameter in own.items():
        parameter.copy_(weights[name])
    return stack


class TestScaleDropsOut:
    """A norm of the sum, without ε, forgets how long the embedding and its branches are
    together.
    """

    @pytest.mark.sampled(one_in=2)
    @given(scale=SCALES, seed=SEEDS)
    @examples(25)
    @pytest.mark.parametrize("kind", ["encoder", "decoder"])
    def test_ngpt_norms_its_input(self, kind, scale, seed):
        stack, x_ND = small_stack("ngpt", kind, 2, "as-placement"), inputs(seed)
        torch.testing.assert_close(
            output(stack, scale * x_ND), output(stack, x_ND), rtol=1e-10, atol=1e-10
        )

    @pytest.mark.sampled(one_in=4)
    @given(scale=SCALES, seed=SEEDS)
    @examples(25)
    @pytest.mark.parametrize(
        "name", ["post-ln", "pre-ln", "keel", "deepnorm", "b2t", "residual", "sub-ln", "t-fixup"]
    )
    def test_a_stream_without_branches(self, name, scale, seed):
        """With F = 0 a stack of norms gives a direction alone; T-Fixup, without norms, gives the
        length as well.
        """
        shape = StackShape(
            kind="encoder", width=WIDTH, ffn_width=FFN_WIDTH, encoder_blocks=2, decoder_blocks=2
        )
        stack = without_branches(
            Stack(named(name)(shape), StackConfig(norm="sphere-norm")).double()
        )
        x_ND = inputs(seed)
        expected = output(stack, x_ND) * (scale if name == "t-fixup" else 1)
        torch.testing.assert_close(
            output(stack, scale * x_ND), expected, rtol=1e-10, atol=1e-10 * max(1, scale)
        )

    @pytest.mark.sampled(one_in=3)
    @given(scale=SCALES, seed=SEEDS)
    @examples(25)
    @pytest.mark.parametrize(
        "name", ["post-ln", "deepnorm", "admin", "admin-log-n", "branch-norm", "ds-init"]
    )
    def test_post_ln_over_branches_that_grow_with_their_input(self, name, scale, seed):
        """With uniform attention and without biases F(c x) = c F(x), and the first norm is the last
        to see c.
        """
        stack = initial_stack(name, "decoder", "sphere-norm")
        schedule(stack, SCHEDULED)
        with torch.no_grad():
            for parameter_name, parameter in stack.named_parameters():
                if parameter_name.endswith((".bias", ".query.weight")):
                    parameter.zero_()
        x_ND = inputs(seed)
        torch.testing.assert_close(
            output(stack, scale * x_ND), output(stack, x_ND), rtol=1e-9, atol=1e-9
        )

    @given(scale=st.floats(0.5, 200), seed=SEEDS)
    @examples(15)
    @pytest.mark.parametrize("name", ["scale-norm", "ngpt"])
    def test_the_length_of_an_embeddings_rows(self, name, scale, seed):
        """FixNorm takes rows as directions at both ends; nGPT does as soon as its weights are put
        back.
        """
        torch.manual_seed(0)
        sizes = {
            "width": WIDTH,
            "ffn_width": FFN_WIDTH,
            "heads": HEADS,
            "encoder_blocks": 1,
            "decoder_blocks": 1,
        }
        model = EncoderDecoder(ModelConfig(placement=name, dropout=0.0, **sizes), 20, 20).double()
        tokens = torch.randint(4, 20, (8,), generator=torch.Generator().manual_seed(seed))

        def logits() -> Tensor:
            with torch.no_grad():
                return model.logits(model(tokens, LAYOUT, tokens, LAYOUT))

        before = logits()
        with torch.no_grad():
            model.target_embedding.weight *= scale
        if name == "ngpt":
            renormalise(unit_vectors(model))
        torch.testing.assert_close(logits(), before, rtol=1e-6, atol=1e-6)


class TestWithoutBranches:
    @KINDS
    @pytest.mark.parametrize("norm", ["layer-norm", "rms-norm"])
    @pytest.mark.parametrize(
        "name",
        [
            "pre-ln",
            "gpt2",
            "lns",
            "sub-ln",
            "reordered",
            "olmo-2",
            "sandwich",
            "mix-ln",
            "scale-norm",
        ],
    )
    def test_a_pre_ln_stream_stays_what_it_was(self, name, norm, kind):
        """The output is the final norm of the embedding; what stands after F is at its first bias,
        0.
        """
        stack = without_branches(initial_stack(name, kind, norm))
        expected = stack.finish.norm.main(inputs())
        torch.testing.assert_close(output(stack, inputs()), expected, **SAME)

    @KINDS
    def test_residual_adds_the_stream_to_its_normed_sum(self, kind):
        stack = without_branches(initial_stack("residual", kind))
        expected = output(without_branches(initial_stack("post-ln", kind)), inputs())
        # ε is 1e-7 there and 1e-5 in Post-LN, at a variance of about 1.
        found = output(stack, inputs()) - stack.finish.norm.main(inputs())
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)

    @KINDS
    def test_attention_residuals_give_the_embedding_a_share_alone(self, kind):
        """All branches are 0 and every query 0: a plain mean over the embedding and 6 branches."""
        stack = without_branches(initial_stack("attn-res", kind))
        torch.testing.assert_close(
            output(stack, inputs()), stack.finish.norm.main(inputs() / 7), **SAME
        )


class TestAtInitialisation:
    @KINDS
    def test_rezero_is_the_identity(self, kind):
        assert torch.equal(output(initial_stack("rezero", kind), inputs()), inputs())

    @KINDS
    def test_branch_norm_is_a_tower_of_norms(self, kind):
        """Before the first update no branch is let in."""
        stack = initial_stack("branch-norm", kind)
        x_ND = inputs()
        for sublayer in stack.sublayers():
            x_ND = sublayer.norm(x_ND)
        torch.testing.assert_close(output(stack, inputs()), x_ND, **SAME)

    @KINDS
    def test_pre_to_post_before_the_first_update_is_pre_ln(self, kind):
        between = initial_stack("pre-to-post", kind)
        pre = with_weights_of(initial_stack("pre-ln", kind), between, pre="main")
        torch.testing.assert_close(output(between, inputs()), output(pre, inputs()), **SAME)

    @KINDS
    @pytest.mark.parametrize("name", ["admin", "admin-clinic"])
    def test_admin_before_its_batch_is_post_ln(self, name, kind):
        stack, post = initial_stack(name, kind), initial_stack("post-ln", kind)
        torch.testing.assert_close(output(stack, inputs()), output(post, inputs()), **SAME)


class TestPlacementsThatMeet:
    """Two formulas with the same weights, where one is said to become the other."""

    def compare(self, stack: Stack, other: Stack, **renamed: str) -> None:
        found = output(with_weights_of(stack, other, **renamed), inputs())
        torch.testing.assert_close(found, output(other, inputs()), **SAME)

    @KINDS
    def test_branch_norm_ends_as_post_ln(self, kind):
        branch_norm = small_stack("branch-norm", kind, 3)
        schedule(branch_norm, 1.0)
        self.compare(small_stack("post-ln", kind, 3, seed=1), branch_norm)

    @KINDS
    def test_pre_to_post_starts_as_pre_ln_and_ends_as_post_ln(self, kind):
        between = small_stack("pre-to-post", kind, 3)
        schedule(between, 0.0)
        self.compare(small_stack("pre-ln", kind, 3, seed=1), between, pre="main")
        schedule(between, 1.0)
        self.compare(small_stack("post-ln", kind, 3, seed=1), between, post="main")

    @KINDS
    @pytest.mark.parametrize("name", ["deepnorm", "admin-log-n", "admin-constant"])
    def test_a_skip_of_1_is_post_ln(self, name, kind):
        weighed = small_stack(name, kind, 3)
        assert weighed.placement.skip_scale > 1
        weighed.placement.skip_scale = 1.0
        self.compare(small_stack("post-ln", kind, 3, seed=1), weighed)

    @KINDS
    def test_sums_over_groups_are_another_formula(self, kind):
        """A group holds a whole block at least: even one block is summed, where `attn-res` keeps
        branches apart.
        """
        full, block = (
            small_stack("attn-res", kind, 2, seed=1),
            small_stack("attn-res-block", kind, 2),
        )
        found = output(with_weights_of(full, block), inputs())
        assert (found - output(block, inputs())).abs().max() > 1e-3

    @KINDS
    def test_mix_ln_of_three_blocks_is_pre_ln(self, kind):
        self.compare(small_stack("pre-ln", kind, 3, seed=1), small_stack("mix-ln", kind, 3))

    @KINDS
    def test_the_first_block_of_lns_is_pre_ln(self, kind):
        self.compare(small_stack("pre-ln", kind, 1, seed=1), small_stack("lns", kind, 1))

    @KINDS
    @pytest.mark.parametrize(
        ("one", "other"), [("gpt2", "pre-ln"), ("ds-init", "post-ln"), ("b2t", "b2t-rescaled")]
    )
    def test_those_that_differ_in_their_first_weights_alone(self, one, other, kind):
        self.compare(small_stack(one, kind, 2, seed=1), small_stack(other, kind, 2))

    def test_sub_ln_variants_differ_in_cross_attention_alone(self):
        plain, cross = small_model("sub-ln"), small_model("sub-ln-cross", seed=1)
        with_weights_of(cross.encoder, plain.encoder)
        torch.testing.assert_close(
            output(cross.encoder, inputs()), output(plain.encoder, inputs()), **SAME
        )
        extra = {n for n, _ in cross.decoder.named_parameters()} - {
            n for n, _ in plain.decoder.named_parameters()
        }
        assert {name.split(".", 2)[2] for name in extra} == {
            f"cross_attention.norm.inner.{last}" for last in ("weight", "bias")
        }

    def test_hybrid_norm_of_one_head_norms_the_whole_width(self):
        shape = StackShape(
            kind="encoder", width=WIDTH, ffn_width=FFN_WIDTH, heads=1, encoder_blocks=2
        )
        by_head, whole = (
            Stack(named(n)(shape), StackConfig()).double()
            for n in ("hybrid-norm", "hybrid-norm-width")
        )
        weights = {n.replace(".each.", "."): p for n, p in by_head.named_parameters()}
        whole.load_state_dict(weights)
        torch.testing.assert_close(output(whole, inputs()), output(by_head, inputs()), **SAME)
