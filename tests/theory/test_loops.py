"""Blocks that are run several times: beside draws in plain torch, beside closed forms and what is
known of one pass.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, layer_norm

from normscope.placement import named, register
from normscope.placement.formulas.pre_and_post import PreLN
from normscope.theory.backward import backward
from normscope.theory.loss import loss_gradient
from normscope.theory.mixing import NOTHING
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, Update, predict, predict_or_refuse
from normscope.theory.settings import InitialState
from normscope.theory.stream import MomentStack, StreamSetting
from normscope_studies.theory.simulation import Simulation

WIDTH, TOKENS, ENTRIES, DRAWS = 128, 6, 200, 24


@pytest.fixture
def scaled_by(registry):
    """Registers Pre-LN under a factor of every branch, which is a function of blocks and loops."""

    def made(scale) -> str:
        def join(self, x, sublayer, norm):
            return x + scale(self.stack.blocks, self.stack.loops) * sublayer(norm(x))

        described = {
            "name": "scaled-by",
            "title": "Scaled",
            "citation": "this test",
            "year": 2026,
            "join": join,
        }
        registry.pop("scaled-by", None)
        register(type("ScaledBy", (PreLN,), described))
        return "scaled-by"

    return made


def drawn(
    blocks: int, loops: int, scale: float, *, causal: bool, post: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Of each draw q after every block of every loop, and squared norms of the gradients,
    (matrices, blocks).
    """
    normed, found = lambda x: layer_norm(x, (WIDTH,)), []
    weights = torch.ones(TOKENS, TOKENS).tril() if causal else torch.ones(TOKENS, TOKENS)
    mean = weights / weights.sum(1, keepdim=True)
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int, generator: torch.Generator = generator) -> Tensor:
            return torch.randn(*shape, generator=generator)

        matrices = [
            [(normal(WIDTH, WIDTH) / WIDTH**0.5).requires_grad_() for _ in range(3)]
            for _ in range(blocks)
        ]
        x = normal(TOKENS, WIDTH)
        squares = [x.square().mean()]
        for value, first, last in matrices * loops:
            if post:
                x = normed(x + scale * (mean @ x @ value))
                x = normed(x + scale * (x @ first).relu() @ last)
            else:
                x = x + scale * (mean @ normed(x) @ value)
                x = x + scale * (normed(x) @ first).relu() @ last
            squares.append(x.square().mean())
        targets = torch.randint(ENTRIES, (TOKENS,), generator=generator)
        cross_entropy(
            (x if post else normed(x)) @ (normal(WIDTH, ENTRIES) / WIDTH**0.5), targets
        ).backward()
        gradients = [[float(one.grad.square().sum()) for one in block] for block in matrices]
        found.append((torch.stack(squares).tolist(), np.transpose(gradients)))
    return np.array([q for q, _ in found]), np.array([gradients for _, gradients in found])


def setting(stack: str, blocks: int, loops: int) -> ModelSetting:
    return ModelSetting(
        stack=stack,
        blocks=blocks,
        loops=loops,
        width=WIDTH,
        ffn_width=WIDTH,
        tokens=TOKENS,
        vocabulary=ENTRIES,
    )


def assert_as_drawn(
    name: str, stack: str, blocks: int, loops: int, scale: float, *, post: bool = False
):
    """Within four standard errors of the draws and 4 %, which is what a width of 128 is from an
    infinite one.
    """
    found = predict(name, setting(stack, blocks, loops))[stack]
    q, gradients = drawn(blocks, loops, scale, causal=stack == "decoder", post=post)
    squares = np.array(
        [found.gradient_norm[matrix] ** 2 for matrix in ("value", "ffn_in", "ffn_out")]
    )
    for what, expected_squares, draws in (("q", found.q, q), ("gradients", squares, gradients)):
        error = draws.std(0, ddof=1) / math.sqrt(DRAWS)
        assert (
            abs(draws.mean(0) - expected_squares) < 4 * error + 0.04 * expected_squares
        ).all(), what


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(("blocks", "loops"), [(2, 4), (4, 2), (3, 3)])
def test_a_looped_stack_is_as_drawn_under_either_scale(stack, blocks, loops, scaled_by):
    assert_as_drawn("looped", stack, blocks, loops, 1 / (loops * math.sqrt(blocks)))
    rooted = scaled_by(lambda blocks, loops: 1 / math.sqrt(blocks * loops))
    assert_as_drawn(rooted, stack, blocks, loops, 1 / math.sqrt(blocks * loops))


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_post_ln_in_loops_is_as_drawn(stack):
    assert_as_drawn("post-ln", stack, 2, 3, 1.0, post=True)


def test_the_right_scale_alone_keeps_the_stream_bounded(scaled_by):
    """What arXiv:2606.18524 says of 1/(N√L) and of 1/√(NL): the first is bounded in N, the second
    grows with it.
    """
    rooted = scaled_by(lambda blocks, loops: 1 / math.sqrt(blocks * loops))
    right, wrong = (
        [predict(name, setting("encoder", 4, loops))["encoder"].q[-1] for loops in (1, 4, 16)]
        for name in ("looped", rooted)
    )
    assert right[0] == pytest.approx(wrong[0], rel=1e-12)
    assert right[0] > right[1] > 0.999 * right[2]
    assert wrong[2] - wrong[1] > 3.5 * (wrong[1] - wrong[0]), "linear in N, not in its root"


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("scheme", ["theory", "xavier-uniform"])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_small_branches_add_up_to_one_pass(stack, scheme, activation, scaled_by):
    """N passes over a stream that has not moved are one, N times as strong: to the order of the
    branches' squares.
    """
    small = scaled_by(lambda blocks, loops: 1e-4 / loops)
    sizes = {"blocks": 3, "width": 64, "tokens": 9, "setting": scheme, "activation": activation}
    once, often = (
        predict(small, ModelSetting(stack=stack, loops=loops, **sizes))[stack] for loops in (1, 5)
    )
    # An encoder's embedding is 1 in its mean square; what the branches add to it is 1e-8 of that,
    # and rounding 1e-15.
    np.testing.assert_allclose(often.q[-1] - often.q[0], once.q[-1] - once.q[0], rtol=2e-4)
    for name, norms in once.gradient_norm.items():
        np.testing.assert_allclose(
            often.gradient_norm[name], norms, rtol=2e-4, atol=1e-12, err_msg=name
        )
    for kind, shares in often.shares.items():
        np.testing.assert_allclose(shares.sum(), once.shares[kind].sum(), rtol=2e-4, err_msg=kind)


@pytest.mark.parametrize(
    "name", ["post-ln", "pre-ln", "residual", "deepnorm", "gpas", "hyper-connections", "b2t"]
)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_covariances_of_nothing_change_nothing(name, kind):
    """Values and gradients are added up in another way where any two parts have a covariance, and
    be it 0.
    """
    model = ModelSetting(stack=kind, blocks=3, width=64, tokens=5, setting="paper")
    found = []
    for related in (False, True):
        placement = named(name)(model.shape(kind))
        initial = InitialState(model.setting, placement)
        stack = MomentStack(placement, StreamSetting(tokens=5, weight_std=initial.weight_std))
        if related:
            stack.atoms.relate(0, 0, NOTHING)
        stack.forward(initial.parts(stack.tokens, model.source))
        gradients = backward(stack, loss_gradient(stack, model)[0])
        found.append(
            [*stack.output.products, *gradients.weights.values(), *stack.shares().values()]
        )
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_shares_add_up_with_what_parts_have_in_common(stack):
    found = predict("pre-ln", ModelSetting(stack=stack, blocks=2, loops=3, width=64, tokens=5))[
        stack
    ]
    assert {kind: len(shares) for kind, shares in found.shares.items()} == {
        "embedding": 1,
        "attention": 6,
        "feed_forward": 6,
    }
    assert sum(shares.sum() for shares in found.shares.values()) == pytest.approx(1, rel=1e-12)
    assert found.shares["embedding"].item() == pytest.approx(found.q[0] / found.q[-1], rel=1e-12)


def test_curves_have_every_pass_and_gradients_every_block():
    found = predict(
        "looped",
        ModelSetting(stack="decoder", blocks=3, loops=4, width=64, tokens=5, setting="paper"),
    )
    one = found["decoder"]
    assert one.q.shape == one.p.shape == one.streams["x"].q.shape == (13,)
    assert {norms.shape for norms in one.gradient_norm.values()} == {(3,)}
    assert one.attention["attention"].entropy.shape == (12,)
    assert {doubt.last for doubt in one.doubts} == {3}, "doubts are of blocks"


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("admin", {}, "takes initial values from one pass"),
        ("denseformer", {}, "reaches back over the depth"),
        ("sub-ln", {}, "acts within its sub-layers"),
        ("pre-ln", {"norm": "dyt"}, "norms squash"),
        ("pre-ln", {"stack": "encoder-decoder"}, "one stack"),
        ("no-norm", {"activation": "gelu"}, "only relu"),
    ],
)
def test_what_is_not_followed_is_refused(name, asked, said, registry):
    register(
        type(
            "NoNorm",
            (PreLN,),
            {"name": "no-norm", "join": lambda self, x, sublayer, norm: x + sublayer(x)},
        )
    )
    model = ModelSetting(blocks=2, loops=2, width=64, **asked)
    with pytest.raises(Unpredictable, match=said):
        predict(name, model)
    found, refused = predict_or_refuse(["looped", name] if not asked else [name], model)
    assert list(refused) == [name]
    assert "looped" not in refused
    assert list(found) == ([] if asked else ["looped"])


def test_stacks_of_the_studies_are_drawn_without_loops():
    with pytest.raises(ValueError, match="loops must be 1, got 2"):
        Simulation("pre-ln", ModelSetting(blocks=2, loops=2, width=64))


def test_no_update_is_followed_through_loops():
    with pytest.raises(Unpredictable, match="no update"):
        predict("looped", ModelSetting(blocks=2, loops=2), update=Update())


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"loops": 0}, "loops must be at least 1"), ({"blocks": 20, "loops": 11}, "got 2,420")],
)
def test_loops_that_no_prediction_is_made_of(asked, said):
    with pytest.raises(ValueError, match=said):
        ModelSetting(**asked)
