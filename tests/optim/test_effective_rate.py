"""What a clip leaves of a rate, compared with torch's own optimisers."""

import math

import pytest
import torch
from torch import nn

from normscope.optim.groups import Clipping, epsilon_of

SGD, ADAM, LION = None, 1e-8, 0.0


def stepped(
    kind: type[torch.optim.Optimizer], gradient: torch.Tensor, clip: float, rate: float
) -> torch.Tensor:
    """What one update with torch's own clipping adds to weights of 0."""
    weight = nn.Parameter(torch.zeros_like(gradient))
    weight.grad = gradient.clone()
    nn.utils.clip_grad_norm_([weight], clip)
    kind([weight], lr=rate).step()
    return weight.detach()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("clip", [1e-9, 1e-6, 1e-3, 1.0, 1e6])
def test_the_effective_rate_makes_the_same_update_without_clipping(kind, clip):
    """Exact for Adam where all entries are of one size, which is what `typical` means."""
    torch.manual_seed(0)
    gradient = 3.0 * torch.randint(0, 2, (400,), dtype=torch.float64).mul(2).sub(1)
    epsilon = epsilon_of(kind([nn.Parameter(gradient)], lr=1.0).param_groups[0])
    norm = float(gradient.norm())
    clipping = Clipping(
        gradient_norm=norm, clip_norm=clip, rate=0.1, epsilon=epsilon, entries=gradient.numel()
    )
    alone = stepped(kind, gradient, math.inf, clipping.effective_rate)
    # torch adds 1e-6 to the norm that it divides by.
    torch.testing.assert_close(stepped(kind, gradient, clip, 0.1), alone, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("norm", "clip", "epsilon", "hides", "far"),
    [
        (1000.0, 1.0, SGD, True, True),
        (999.0, 1.0, SGD, False, False),
        (5.0, 0.005, SGD, True, True),
        (1000.0, 1.0, ADAM, False, True),
        (1000.0, 1.0, LION, False, True),
        (1.0, 1e-13, ADAM, True, True),
        (1.0, 1e-13, LION, False, True),
        (math.inf, 1.0, SGD, True, True),
        (math.inf, 1.0, ADAM, False, True),
        (1e9, math.inf, SGD, False, False),
    ],
)
def test_a_thousand_times_is_the_boundary(norm, clip, epsilon, hides, far):
    clipping = Clipping(gradient_norm=norm, clip_norm=clip, rate=0.1, epsilon=epsilon)
    assert (clipping.hides_rate, clipping.is_far_below) == (hides, far)


@pytest.mark.parametrize("epsilon", [SGD, ADAM, LION])
@pytest.mark.parametrize("norm", [0.5, 30.0])
def test_a_norm_below_the_clip_leaves_the_rate(norm, epsilon):
    """Small numbers are as good as others: none of them has to exceed 1."""
    clipping = Clipping(gradient_norm=norm, clip_norm=norm, rate=1e-3, epsilon=epsilon)
    assert (clipping.factor, clipping.is_far_below) == (1.0, False)
    assert clipping.effective_rate == pytest.approx(1e-3, rel=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gradient_norm": 0.0},
        {"clip_norm": -1.0},
        {"rate": math.nan},
        {"entries": 0},
        {"epsilon": -1e-8},
        {"epsilon": math.inf},
    ],
)
def test_numbers_that_mean_nothing(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        Clipping(**{"gradient_norm": 1.0, "clip_norm": 1.0, "rate": 0.1, "epsilon": None, **wrong})


@pytest.mark.parametrize(
    ("kind", "epsilon"),
    [
        (torch.optim.SGD, None),
        (torch.optim.AdamW, 1e-8),
        (torch.optim.RMSprop, 1e-8),
        (torch.optim.Adagrad, 1e-10),
        (torch.optim.Rprop, 0.0),
    ],
)
def test_which_optimisers_divide_by_the_gradient(kind, epsilon):
    assert epsilon_of(kind([nn.Parameter(torch.ones(2))]).param_groups[0]) == epsilon
