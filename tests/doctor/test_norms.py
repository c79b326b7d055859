"""Norms known by what they do, however they are written; and things that only look like norms."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.doctor import find_stacks
from normscope.doctor.observe.examine import examined

WIDTH = 16


class Residual(nn.Module):
    """x ← x + F(norm(x)), three times, with any function for the norm."""

    def __init__(self, norm: Callable[[Tensor], Tensor], gain: Tensor | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.matrices = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.gain = norm, None if gain is None else nn.Parameter(gain)

    def forward(self, x: Tensor) -> Tensor:
        for matrix in self.matrices:
            y = self.norm(x)
            x = x + matrix(y if self.gain is None else self.gain * y).relu()
        return x


def layer_norm(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        x.var(-1, keepdim=True, unbiased=False) + 1e-6
    )


def layer_norm_in_steps(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def on_sphere(x: Tensor) -> Tensor:
    return math.sqrt(WIDTH) * x / x.norm(dim=-1, keepdim=True)


VECTOR, NUMBER = torch.full((WIDTH,), 0.7), torch.tensor(3.0)


@pytest.mark.parametrize(
    ("norm", "gain", "name", "epsilon"),
    [
        (layer_norm, VECTOR, "layer-norm", 1e-6),
        (layer_norm, None, "layer-norm", 1e-6),
        (layer_norm_in_steps, VECTOR, "layer-norm", 1e-6),
        (lambda x: functional.layer_norm(x, (WIDTH,), eps=1e-3), None, "layer-norm", 1e-3),
        (rms_norm, VECTOR, "rms-norm", 1e-6),
        (lambda x: functional.rms_norm(x, (WIDTH,), eps=1e-4), VECTOR, "rms-norm", 1e-4),
        (lambda x: functional.normalize(x, dim=-1), NUMBER, "scale-norm", 0.0),
        (on_sphere, None, "sphere-norm", 0.0),
    ],
)
def test_norms(norm, gain, name, epsilon):
    (stack,) = find_stacks(Residual(norm, gain), torch.randn(2, 5, WIDTH))
    assert stack.norm == name
    assert stack.norm_epsilon == pytest.approx(epsilon, rel=0.02, abs=1e-12)
    assert {str(s.formula) for s in stack.sublayers} == {"x ← x + feed_forward(norm(x))"}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / (1 + x.abs().mean(-1, keepdim=True)),
        lambda x: x - x.mean(-1, keepdim=True),
        lambda x: x.softmax(-1),
        lambda x: x * x.mean(-1, keepdim=True).rsqrt().nan_to_num(),
        lambda x: torch.tanh(0.5 * x),  # a slope that is not trained is no DyT's
        lambda x: torch.erf(x / 2),
    ],
)
def test_no_norms(function):
    (stack,) = find_stacks(Residual(function, None), torch.randn(2, 5, WIDTH))
    assert stack.norm == ""
    assert stack.norm_epsilon is None
    assert all(s.placement == "" or s.confidence == "unsure" for s in stack.sublayers)


@pytest.mark.parametrize(
    ("function", "dimensions"),
    [
        (lambda x: x / x.norm(), (-3, -2, -1)),
        (lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt(), (-2,)),
        (lambda x: x * torch.rsqrt(x.pow(2).mean((1, 2), keepdim=True) + 1e-6), (-2, -1)),
        (lambda x: functional.layer_norm(x, x.shape[1:]), (-2, -1)),
        (lambda x: functional.normalize(x, dim=0), (-3,)),
    ],
)
def test_what_a_norm_is_taken_over(function, dimensions):
    (stack,) = find_stacks(Residual(function, None), torch.randn(2, 5, WIDTH))
    norms = [t for s in stack.sublayers for t in s.formula.segment.terms if t.kind == "norm"]
    assert norms
    assert {term.norm.over for term in norms} == {dimensions}


def test_a_norm_over_channels_of_images_is_over_their_features():
    """Of (B, C, H, W), written over dimension 1 or as a LayerNorm of what was permuted."""

    class Convolved(nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.norm = norm
            self.first, self.second = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)

        def forward(self, x):
            for f in (self.first, self.second):
                x = x + f(self.norm(x))
            return x

    def by_hand(x):
        return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-6).sqrt()

    def permuted(x):
        return functional.layer_norm(x.permute(0, 2, 3, 1), (6,)).permute(0, 3, 1, 2)

    for norm in (by_hand, permuted):
        stacks, _ = examined(Convolved(norm), (torch.randn(2, 6, 5, 4),))
        uses = [use for stack in stacks for use in stack.norm_uses]
        assert len(uses) == 2
        assert all(use.over == (use.features,) for use in uses)
