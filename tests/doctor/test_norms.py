"""Norms known by what they do, however they are written; and things that only look like norms."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.doctor import find_stacks

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
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-6)


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
        lambda x: x / x.norm(),  # of all tokens together
        lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt(),  # over positions
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
