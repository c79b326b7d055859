"""Wirings nobody registered, mixed ones, and ones that are almost right: what is said of them, and
what is not.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normscope.doctor import Stack, find_stacks

pytestmark = pytest.mark.sampled(one_in=8)

WIDTH = 16
F = Callable[[Tensor], Tensor]
Join = Callable[[Tensor, F, F], Tensor]
"""x, a sub-layer and a norm -> the stream after it."""


class Mixing(nn.Module):
    """Single-head attention, the smallest thing in which tokens see each other."""

    def __init__(self) -> None:
        super().__init__()
        self.packed, self.last = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.packed(x).chunk(3, -1)
        return self.last((q @ k.mT).softmax(-1) @ v)


class Wired(nn.Module):
    """Blocks of attention and feed-forward; joins: one for each sub-layer, or for all of them."""

    def __init__(self, *joins: Join, blocks: int = 4, final: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.joins = list(joins) * (2 * blocks if len(joins) == 1 else 1)
        self.f = nn.ModuleList(
            module
            for _ in range(blocks)
            for module in (
                Mixing(),
                nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH)),
            )
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in self.f)
        self.final = nn.LayerNorm(WIDTH) if final else nn.Identity()
        self.gain = nn.Parameter(torch.full((WIDTH,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        for join, f, norm in zip(self.joins, self.f, self.norms, strict=True):
            x = join(x, f, norm)
        return self.final(x)


def post(x: Tensor, f: F, norm: F) -> Tensor:
    return norm(x + f(x))


def pre(x: Tensor, f: F, norm: F) -> Tensor:
    return x + f(norm(x))


def found(model: nn.Module) -> Stack:
    (stack,) = find_stacks(
        model, torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))
    )
    assert stack.blocks == 4
    assert [s.kind for s in stack.sublayers] == ["attention", "feed_forward"] * 4
    return stack


def test_a_block_wired_otherwise_within_a_stack():
    stack = found(Wired(*[pre] * 4, post, post, *[pre] * 2, final=True))
    assert [s.placement for s in stack.sublayers] == ["pre-ln"] * 4 + ["post-ln"] * 2 + [
        "pre-ln"
    ] * 2
    assert {s.confidence for s in stack.sublayers} == {"sure"}
    assert stack.placement == "pre-ln"


@pytest.mark.parametrize("join", [pre, post])
@pytest.mark.parametrize("final", [False, True])
def test_a_missing_or_second_final_norm(join, final):
    stack = found(Wired(join, final=final))
    assert stack.final_norm is final
    assert {str(s.formula) for s in stack.sublayers if s.kind == "attention"} == {
        "x ← x + attention(norm(x))" if join is pre else "x ← norm(x + attention(x))"
    }
    assert len({s.placement for s in stack.sublayers}) == 1


@pytest.mark.parametrize(
    ("alpha", "placement", "confidence"),
    [(8**0.25, "deepnorm", "sure"), (1.7, "", "unsure"), (8**0.5, "admin-constant", "sure")],
)
def test_the_constant_of_a_heavier_skip(alpha, placement, confidence):
    stack = found(Wired(lambda x, f, norm: norm(alpha * x + f(x))))
    assert {(s.placement, s.confidence) for s in stack.sublayers} == {(placement, confidence)}
    assert [s.skip_scale for s in stack.sublayers] == pytest.approx([alpha] * 8)


def test_a_norm_does_not_see_which_side_is_scaled():
    stack = found(Wired(lambda x, f, norm: norm(x + f(x) / 8**0.25)))
    assert {s.placement for s in stack.sublayers} == {"deepnorm"}
    assert [s.skip_scale for s in stack.sublayers] == [1.0] * 8
    assert [s.branch_scale for s in stack.sublayers] == pytest.approx([8**-0.25] * 8)


def test_unknown_formulas_are_printed():
    for model, attention in [
        (Wired(lambda x, f, norm: norm(f(x))  + x * 0.5), "x ← norm(attention(x)) + 0.5 · x"),
        (Wired(lambda x, f, norm: norm(x) + f(norm(x))), "x ← norm(x) + attention(norm(x))"),
    ]:  # fmt: skip
        stack = found(model)
        assert {s.placement for s in stack.sublayers} == {""}
        assert {(s.scaled_placement, s.confidence) for s in stack.sublayers} == {("", "unsure")}
        assert str(stack.sublayers[0].formula) == attention


def test_a_trained_number_for_each_feature_of_a_branch():
    layer_scale = Wired(pre, final=True)
    layer_scale.joins = [lambda x, f, norm: x + layer_scale.gain * f(norm(x))] * 8
    stack = found(layer_scale)
    assert {(s.placement, s.confidence) for s in stack.sublayers} == {("layer-scale", "sure")}
    assert str(stack.sublayers[0].formula) == "x ← x + trained · attention(norm(x))"


def test_parts_of_a_placement_are_not_taken_for_it():
    """x + F(x) is HybridNorm's feed-forward, but a stack without any norm is no HybridNorm."""
    stack = found(Wired(lambda x, f, norm: x + f(x)))
    assert all(s.placement == "" or s.confidence == "unsure" for s in stack.sublayers)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    model = Wired(pre, final=True).to(dtype)
    (stack,) = find_stacks(model, torch.randn(2, 5, WIDTH, dtype=dtype))
    assert {s.placement for s in stack.sublayers} == {"pre-ln"}


@pytest.mark.thorough
def test_a_deep_stack():
    (stack,) = find_stacks(Wired(post, blocks=40), torch.randn(1, 3, WIDTH))
    assert stack.blocks == 40
    assert {s.placement for s in stack.sublayers} == {"post-ln"}


def test_in_place_sums():
    def join(x: Tensor, f: F, norm: F) -> Tensor:
        branch = f(norm(x))
        x += branch
        return x

    assert {s.placement for s in found(Wired(join, final=True)).sublayers} == {"pre-ln"}


def test_a_function_that_runs_the_model():
    model = Wired(pre, final=True)
    (stack,) = find_stacks(model, lambda m: m(torch.randn(2, 5, WIDTH)).square().mean())
    assert (stack.placement, stack.final_norm) == ("pre-ln", True)


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_traced_models_show_their_operations_too():
    x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))
    assert {s.placement for s in found(torch.jit.trace(Wired(pre, final=True), x)).sublayers} == {
        "pre-ln"
    }


@pytest.mark.parametrize(
    ("join", "name", "scale"),
    [(pre, "pre-ln", 8**-0.5), (pre, "pre-ln", 0.3), (post, "post-ln", 0.25)],
)
def test_branches_scaled_by_depth(join, name, scale):
    """Of 1/√(2L) and of 0.3 nobody registered a placement, but Admin's skip of √(2L) after which
    comes a norm.
    """
    stack = found(Wired(lambda x, f, norm: join(x, lambda y: scale * f(y), norm), final=True))
    assert {(s.placement, s.scaled_placement, s.confidence) for s in stack.sublayers} == {
        ("", name, "sure")
    }
    assert [s.branch_scale for s in stack.sublayers] == pytest.approx([scale] * 8)


def test_branches_over_the_blocks_are_completep():
    stack = found(Wired(lambda x, f, norm: pre(x, lambda y: f(y) / 4, norm), final=True))
    assert {(s.placement, s.confidence) for s in stack.sublayers} == {("completep", "sure")}


class Adapted(nn.Linear):
    """A projection with an adapter of low rank beside it (LoRA, Hu et al. 2021)."""

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs, WIDTH)
        self.down, self.up = nn.Linear(inputs, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 2.0 * self.up(self.down(x))


def test_an_adapter_beside_an_output_projection_is_part_of_its_sublayer():
    model = Wired(pre, final=True)
    for attention, feed_forward in zip(model.f[::2], model.f[1::2], strict=True):
        attention.last, feed_forward[2] = Adapted(WIDTH), Adapted(24)
    assert {(s.placement, s.confidence) for s in found(model).sublayers} == {("pre-ln", "sure")}
