"""Moving weights along an optimiser's first updates: exact steps, exact ways back, and how far rows differ."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from normscope.measure.line import Line, first_updates, row_spread


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    loss = nn.functional.cross_entropy(model(torch.randn(11, 5)), torch.randint(3, (11,)))
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1),
    ],
)
def test_a_step_along_the_line_is_the_optimisers_first(make):
    """Adam, AdamW and plain SGD take the same step as long as the gradient is the same."""
    model = net()
    found = gradients(model)
    direction = first_updates(dict(model.named_parameters()), found, lambda _, p: make([p]), updates=1)
    theirs = copy.deepcopy(model)
    optimizer = make(theirs.parameters())
    for group in optimizer.param_groups:
        group["lr"] = 0.03
    for name, weight in theirs.named_parameters():
        weight.grad = found[name].clone()
    optimizer.step()
    with Line(dict(model.named_parameters()), direction).at(0.03):
        for (name, here), there in zip(model.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-6, msg=name)


def test_momentum_adds_up():
    """Momentum m over n held updates moves by g Σ_t (1 - m^t) / (1 - m) in all."""
    model = net()
    found, momentum = gradients(model), 0.9
    direction = first_updates(
        dict(model.named_parameters()), found, lambda _, p: torch.optim.SGD([p], lr=1.0, momentum=momentum), updates=10
    )
    factor = np.mean([(1 - momentum**t) / (1 - momentum) for t in range(1, 11)])
    for name, step in direction.items():
        torch.testing.assert_close(step, -factor * found[name], rtol=1e-3, atol=1e-4)


def test_every_bit_comes_back():
    model = net()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    direction = first_updates(
        dict(model.named_parameters()), gradients(model), lambda _, p: torch.optim.Adam([p], lr=1.0)
    )
    line = Line(dict(model.named_parameters()), direction)
    for rate in (1e-7, 0.3, 1e9):
        with line.at(rate):
            moved = any(not torch.equal(before[name], weight) for name, weight in model.named_parameters())
        assert moved
        assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())
    with pytest.raises(RuntimeError, match="stop"), line.at(1.0):
        raise RuntimeError("stop")
    assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())
    assert all(weight.grad is None for weight in model.parameters())


def test_weights_that_are_not_trained_stay():
    model = net()
    trained = lambda name, p: torch.optim.SGD([p], lr=1.0) if name.startswith("0.") else None  # noqa: E731
    direction = first_updates(dict(model.named_parameters()), gradients(model), trained)
    assert set(direction) == {"0.weight", "0.bias"}


def test_at_the_reach_of_a_line_it_is_as_long_as_the_weights():
    model = net()
    direction = first_updates(dict(model.named_parameters()), gradients(model), lambda _, p: torch.optim.Adam([p]))
    line = Line(dict(model.named_parameters()), direction)
    weights = torch.cat([w.detach().flatten() for w in model.parameters()])
    steps = torch.cat([direction[name].flatten() for name, _ in model.named_parameters()])
    assert line.reach * steps.norm() == pytest.approx(float(weights.norm()), rel=1e-6)


@given(st.integers(2, 200), st.integers(2, 9), st.floats(0.0, 3.0))
def test_row_spread_is_the_variance_of_rows(rows, columns, common):
    generator = torch.Generator().manual_seed(rows * columns)
    output = torch.randn(rows, columns, generator=generator) + common * torch.randn(columns, generator=generator)
    every, between = row_spread(output.view(rows, 1, columns))
    plain = output.double().numpy()
    plain = plain - plain.mean(1, keepdims=True)
    assert every == pytest.approx((plain**2).mean(), rel=1e-9)
    assert between == pytest.approx(plain.var(0).mean(), rel=1e-7, abs=1e-12)


def test_equal_rows_have_no_spread():
    every, between = row_spread(torch.tensor([[1.0, -2.0, 4.0]]).expand(5, 3))
    assert every > 1
    assert between < 1e-12


def test_rows_are_only_read():
    output = torch.tensor([[1.0, -2.0, 4.0], [0.0, 1.0, 5.0]], dtype=torch.float64)
    row_spread(output)
    assert output.tolist() == [[1.0, -2.0, 4.0], [0.0, 1.0, 5.0]]
