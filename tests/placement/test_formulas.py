"""Every placement's stack against its paper's equations in float64: outputs and every gradient."""

from types import SimpleNamespace

import pytest
from torch import Tensor

from normscope.placement import StackShape, named
from reference import ReferenceStack
from stacks import assert_model_matches, assert_stack_matches, small_model, small_stack


def post_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + f(x))
    return x


def pre_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(f.norm(x))
    return stack.final_norm(x)


def deepnorm(skip_scale: dict[str, float]):
    """skip_scale: by the prefix of the stack's weights."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            x = f.norm(skip_scale[stack.at] * x + f(x))
        return x

    return formula


def residual(x: Tensor, stack: ReferenceStack) -> Tensor:
    branches = [x]
    for f in stack.sublayers():
        branches.append(f(x))
        x = f.norm(x + branches[-1])
    return x + stack.final_norm(sum(branches))


FORMULAS = {
    "post-ln": post_ln,
    "pre-ln": pre_ln,
    # 2 encoder and 3 decoder blocks together; 3 blocks alone, whichever the kind.
    "deepnorm": deepnorm({"": 6**0.25, "encoder.": 0.81 * 48 ** (1 / 16), "decoder.": 9**0.25}),
    "residual": residual,
}
EPSILON = {"residual": 1e-7}
NORMS = ["layer-norm", "rms-norm"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("name", FORMULAS)
def test_one_stack(name, kind, norm):
    stack = small_stack(name, kind, blocks=3, norm=norm)
    assert_stack_matches(stack, FORMULAS[name], norm=norm, epsilon=EPSILON.get(name, 1e-5))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", FORMULAS)
def test_encoder_and_decoder(name, norm):
    assert_model_matches(small_model(name, norm), FORMULAS[name], norm=norm, epsilon=EPSILON.get(name, 1e-5))


@pytest.mark.parametrize(
    ("encoder_blocks", "decoder_blocks", "kind", "skip_scale", "branch_gain"),
    [
        (6, 6, "encoder", 1.418, 0.497),  # Wang et al. 2022, and three implementations of it
        (6, 6, "decoder", 2.060, 0.343),
        (12, 0, "encoder", 2.213, 0.319),  # 24^1/4, 96^-1/4
        (0, 32, "decoder", 2.828, 0.250),  # 64^1/4, 256^-1/4
        (18, 18, "encoder", 1.999, 0.353),  # 0.81 (18^5)^1/16, 0.87 (18^5)^-1/16
        (8, 1, "decoder", 1.316, 0.537),  # 3^1/4, 12^-1/4
    ],
)
def test_deepnorm_constants(encoder_blocks, decoder_blocks, kind, skip_scale, branch_gain):
    shape = StackShape(kind=kind, width=8, encoder_blocks=encoder_blocks, decoder_blocks=decoder_blocks)
    placement = named("deepnorm")(shape)
    assert placement.skip_scale == pytest.approx(skip_scale, abs=5e-4)
    assert placement.branch_gain == pytest.approx(branch_gain, abs=5e-4)
    # Within one stack alone the two constants are tied: their product is (2/8)^1/4 = 2^-1/2 whatever the depth.
    if not (encoder_blocks and decoder_blocks):
        assert placement.skip_scale * placement.branch_gain == pytest.approx(0.5**0.5, rel=1e-14)


def test_residual_epsilon_is_the_authors():
    assert named("residual").norm_epsilon == 1e-7
    assert small_stack("residual", "encoder", 1).finish.norm.main.eps == 1e-7


def test_residual_output_is_the_stream_plus_the_normed_sum():
    """On plain numbers: LN is `x / 10`, F(x) is `x + 1`."""
    placement = named("residual")(StackShape(kind="encoder", width=8, encoder_blocks=1))

    def norm(x: float) -> float:
        return x / 10

    end = SimpleNamespace(norm=norm)
    state = placement.start(3.0, end)
    assert state == (3.0, 3.0)
    state = placement.join(state, lambda x: x + 1, norm)
    assert state == (0.7, 7.0)
    assert placement.finish(state, end) == pytest.approx(1.4)
