"""Clipped steps: by their closed form, never longer than allowed, and without effect where none is
too long.
"""

import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from normscope.optim import OPTIMIZERS, OptimizerConfig
from normscope.optim.optimizers import clipped_step, make_optimizer

RATE = 0.25


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)).double()


def backward(of: nn.Module, scale: float = 1.0, seed: int = 1) -> None:
    x = torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    of.zero_grad()
    (scale * of(x).square().sum()).backward()


def test_a_long_step_keeps_its_direction_and_has_the_length_that_is_allowed() -> None:
    made = model()
    backward(made)
    before = [parameter.detach().clone() for parameter in made.parameters()]
    gradients = [parameter.grad.clone() for parameter in made.parameters()]
    rms = [float(gradient.square().mean().sqrt()) for gradient in gradients]
    most = sorted(rms)[2]
    clipped = clipped_step(torch.optim.SGD(made.parameters(), lr=RATE), most)
    assert clipped == sum(size > most for size in rms) == len(rms) - 3
    for parameter, old, gradient, size in zip(
        made.parameters(), before, gradients, rms, strict=True
    ):
        wanted = old - RATE * gradient * min(1.0, most / size)
        torch.testing.assert_close(parameter.detach(), wanted, rtol=1e-13, atol=1e-13)


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from([name for name in OPTIMIZERS if name != "lion"]),
    most=st.floats(0.01, 2.0),
    scale=st.floats(1e-3, 1e3),
)
def test_no_step_is_longer_than_allowed(name: str, most: float, scale: float) -> None:
    made = model()
    config = OptimizerConfig(name=name, peak_lr=RATE, weight_decay=0.1)
    optimizer = make_optimizer(made, config)
    for update in range(3):
        backward(made, scale, seed=update)
        before = [parameter.detach().clone() for parameter in made.parameters()]
        clipped_step(optimizer, most)
        for parameter, old in zip(made.parameters(), before, strict=True):
            assert float((parameter.detach() - old).square().mean().sqrt()) <= most * RATE * (
                1 + 1e-9
            )


def test_where_no_step_is_too_long_the_bits_are_those_without() -> None:
    ends = []
    for clips in (False, True):
        made = model()
        optimizer = make_optimizer(made, OptimizerConfig(name="adamw", peak_lr=RATE))
        for update in range(4):
            backward(made, seed=update)
            if clips:
                assert clipped_step(optimizer, 1e6) == 0
            else:
                optimizer.step()
        ends.append([parameter.detach() for parameter in made.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))
