"""Weights after the first updates of an optimiser: those of a plain loop, on a model that is left
as it was.
"""

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from normscope.measure import weights_after
from normscope.optim import OptimizerConfig, make_optimizer

D, T = 6, 5


class Residual(nn.Module):
    """x ← x + W x, so many times, and a head."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(blocks))
        self.head = nn.Linear(D, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for branch in self.branches:
            x = x + branch(x)
        return self.head(x)


def made(blocks: int) -> tuple[Residual, Tensor]:
    """A model and its input, in float64."""
    torch.manual_seed(0)
    return Residual(blocks).double(), torch.randn(2, T, D, dtype=torch.float64)


def test_the_model_is_left_as_it_was() -> None:
    """Weights, buffers, gradients, modes, hooks and generators; dropout is off, so that numbers
    come twice.
    """
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True) for _ in range(2)]
    model = nn.Sequential(nn.Linear(8, 8), *layers, nn.Flatten(0, 1), nn.BatchNorm1d(8))
    model[1].eval()
    x = torch.randn(3, T, 8)
    model(x).square().mean().backward()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = {
        name: (p.grad, p.grad.clone()) for name, p in model.named_parameters() if p.grad is not None
    }
    modes = [module.training for module in model.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()

    def loss(update: int) -> Tensor:
        return model(x + update * torch.rand(1)).square().mean()

    weights_after(model, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2), loss, (1, 3))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    for name, p in model.named_parameters():
        held, value = gradients[name]
        assert p.grad is held, name
        assert torch.equal(held, value), name
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert states[2] == np.random.get_state()[1].tolist()


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lion", "muon"])
def test_weights_after_updates_are_those_of_a_loop(name: str) -> None:
    if name == "lion":
        pytest.importorskip("lion_pytorch")
    model, x = made(2)
    config = OptimizerConfig(name=name, peak_lr=0.01, weight_decay=0.1)
    found = weights_after(
        model, lambda m: make_optimizer(m, config), lambda u: (u * model(x)).square().mean(), (1, 3)
    )
    optimizer = make_optimizer(model, config)
    for update in range(1, 4):
        optimizer.zero_grad()
        (update * model(x)).square().mean().backward()
        optimizer.step()
        if update in found:
            for weight_name, weight in model.named_parameters():
                assert torch.equal(found[update][weight_name], weight), (update, weight_name)
    assert [*found] == [1, 3]


def test_a_loss_without_a_number_is_refused() -> None:
    model, x = made(2)
    with pytest.raises(ValueError, match="one finite number"):
        weights_after(
            model,
            lambda m: torch.optim.SGD(m.parameters()),
            lambda _: model(x).sum() * torch.inf,
            (1,),
        )
