"""Closed forms of held updates, against the optimisers' own steps in float64."""

import pytest
import torch
from torch import nn, optim

from normscope.measure.line import HELD, first_updates

RATE, UPDATES = 1e-6, 10

SETTINGS = [
    (optim.Adam, {}),
    (optim.Adam, {"weight_decay": 0.3, "eps": 0.05}),
    (optim.Adam, {"amsgrad": True, "maximize": True, "betas": (0.5, 0.6)}),
    (optim.Adam, {"weight_decay": 0.3, "decoupled_weight_decay": True}),
    (optim.AdamW, {"weight_decay": 0.3, "eps": 0.05}),
    (optim.AdamW, {"weight_decay": 0.0, "maximize": True}),
    (optim.SGD, {"dampening": 0.4}),
    (optim.SGD, {"weight_decay": 0.3, "maximize": True}),
    (optim.SGD, {"momentum": 0.9}),
    (optim.SGD, {"momentum": 0.9, "dampening": 0.4, "weight_decay": 0.3}),
    (optim.SGD, {"momentum": 0.8, "nesterov": True}),
]


@pytest.mark.parametrize(("kind", "settings"), SETTINGS, ids=lambda part: str(getattr(part, "__name__", part)))
def test_the_mean_update_is_that_of_the_optimisers_own_steps(kind, settings):
    generator = torch.Generator().manual_seed(5)
    start, gradient = (torch.randn(40, generator=generator, dtype=torch.float64) for _ in range(2))
    weight = nn.Parameter(start.clone())
    optimizer = kind([weight], lr=RATE, **settings)
    weight.grad = gradient.clone()
    for _ in range(UPDATES):
        optimizer.step()
    expected = (weight.detach() - start) / (RATE * UPDATES)
    found = HELD[kind](start, gradient, optimizer.param_groups[0], UPDATES)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_an_optimiser_of_ones_own_is_asked_to_step():
    """A subclass may do anything: only the classes themselves have a closed form."""

    class Halved(optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad /= 2
            super().step(closure)

    weight, gradient = nn.Parameter(torch.zeros(3)), torch.ones(3)
    own = first_updates({"w": weight}, {"w": gradient}, lambda _, p: Halved([p], lr=1.0), updates=2)
    theirs = first_updates({"w": weight}, {"w": gradient}, lambda _, p: optim.SGD([p], lr=1.0), updates=2)
    torch.testing.assert_close(own["w"], torch.full((3,), -(0.5 + 0.25) / 2))
    torch.testing.assert_close(theirs["w"], -gradient)
    assert bool((gradient == 1).all())
