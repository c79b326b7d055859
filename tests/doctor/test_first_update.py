"""A model along its first update, against steps that were really taken."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from normscope.doctor.advise.first_update import FirstUpdate, first_update

ROWS, WIDTH, CLASSES = 40, 6, 5


def classifier() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, CLASSES))


def batch():
    generator = torch.Generator().manual_seed(4)
    return torch.randn(ROWS, WIDTH, generator=generator), torch.randint(CLASSES, (ROWS,), generator=generator)


def looked(model, make=lambda _, p: torch.optim.Adam([p]), **options) -> FirstUpdate:
    x, y = batch()
    loss = options.pop("loss", lambda logits: nn.functional.cross_entropy(logits, y))
    return first_update(model, x, loss, make)[0]


def test_losses_are_those_after_a_real_first_update():
    model, (x, y) = classifier(), batch()
    seen = looked(model)
    for place in range(0, len(seen.rates), 4):
        trained = copy.deepcopy(model)
        optimizer = torch.optim.Adam(trained.parameters(), lr=seen.rates[place])
        nn.functional.cross_entropy(trained(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            assert seen.losses[place] == pytest.approx(float(nn.functional.cross_entropy(trained(x), y)), rel=1e-3)
    assert seen.loss_before == pytest.approx(float(nn.functional.cross_entropy(model(x), y).detach()), rel=1e-6)


def test_the_model_is_as_it_was():
    model = classifier()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[2].train(False)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    looked(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert bool((model[0].weight.grad == 1).all())
    assert model[3].weight.grad is None
    assert model.training
    assert not model[2].training


def test_the_critical_rate_of_a_bowl_is_the_newton_step():
    """f = a/2 ‖w‖² along -g = -a w: the loss is lowest at rate 1/a, and back where it was at 2/a."""
    curvature = 8.0

    class Bowl(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(-1, 1, 30).view(5, 6))

        def forward(self, x):
            return self.weight * x

    seen, _ = first_update(
        Bowl(), torch.ones(1), lambda w: curvature / 2 * w.square().sum(), lambda _, p: torch.optim.SGD([p], lr=1.0)
    )
    assert seen.critical_rate == pytest.approx(1 / curvature, rel=1e-3)
    assert seen.rise_rate == pytest.approx(2 / curvature, rel=0.25)
    assert seen.reach == pytest.approx(1 / curvature, rel=1e-4)


def test_weights_behind_a_shut_gate_are_opened():
    """With a gate of 0 the branch's weights have no gradient, but they move as soon as the gate does."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner, self.head, self.gate = (
                nn.Linear(WIDTH, WIDTH),
                nn.Linear(WIDTH, CLASSES),
                nn.Parameter(torch.zeros(1)),
            )

        def forward(self, x):
            return self.head(x + self.gate * torch.tanh(self.inner(x)))

    model = Gated()
    seen = looked(model)
    assert seen.shut_weights == 2  # weight and bias of the branch
    frozen = copy.deepcopy(model)
    frozen.inner.requires_grad_(False)
    still = looked(frozen)
    assert still.shut_weights == 0
    assert seen.losses[-1] != pytest.approx(still.losses[-1], rel=1e-3)


KNOWN = FirstUpdate(
    reach=1.0,
    rates=(0.01, 0.1, 1.0, 10.0),
    losses=(2.0, 1.0, 4.0, math.inf),
    spreads=(1.0, 0.1, 1e-3, math.nan),
    loss_before=3.0,
    shut_weights=0,
)


def test_crossings_lie_between_rates_by_logarithms():
    assert KNOWN.spread_falls_to(10**-0.5) == pytest.approx(10**-1.5)
    assert KNOWN.spread_falls_to(0.01) == pytest.approx(10**-0.5)
    assert KNOWN.spread_falls_to(1e-9) == 10.0  # not finite is lost
    assert replace(KNOWN, spreads=(1.0, 0.9, 2.0, 3.0)).spread_falls_to(0.5) is None
    assert KNOWN.rise_rate == pytest.approx(10 ** (-1 + 2 / 3))
    assert replace(KNOWN, losses=(2.0, 1.0, 0.5, 0.2)).rise_rate is None
    assert replace(KNOWN, losses=(4.0, 5.0, 6.0, 7.0)).critical_rate is None
    assert replace(KNOWN, losses=(2.0, 1.0, 1.0, 7.0)).critical_rate == pytest.approx(0.55)


def test_a_model_that_loses_its_tokens_says_so():
    """Post-LN, deep: the spread between rows falls to nothing while the loss still falls; Pre-LN's does not."""

    def spread_lost(norm_first):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=norm_first)
        model = nn.Sequential(
            nn.Embedding(50, 32), nn.TransformerEncoder(layer, 8, enable_nested_tensor=False), nn.Linear(32, 50)
        )
        for weight in model[1].parameters():
            if weight.ndim > 1:
                nn.init.xavier_uniform_(weight)
        x = torch.randint(50, (8, 16))
        seen, _ = first_update(
            model,
            x,
            lambda logits: nn.functional.cross_entropy(logits.view(-1, 50), x.roll(1, 1).reshape(-1)),
            lambda _, p: torch.optim.Adam([p], betas=(0.9, 0.98)),
        )
        return seen.spread_falls_to(1e-3)

    post, pre = spread_lost(False), spread_lost(True)
    assert post is not None
    assert pre is None or pre > 10 * post


def test_a_model_that_cannot_move_is_refused():
    with pytest.raises(ValueError, match="moves no weight"):
        looked(classifier(), make=lambda _, p: None)
