"""Norms of the expected gradient against all batches' gradients in one table, and against what a
known noise gives.
"""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from kinds import examples
from live import begin, live_tensors
from normscope.measure import gradient_norms
from normscope_studies.figure_3.gradients import expected_gradient_norms


def small(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2, bias=False)).double()


def data(count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(count, 5, 4, generator=generator, dtype=torch.float64))


def loss_of(model):
    return lambda x: model(x).square().mean()


def table(model: nn.Module, batches: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """(batches, elements) of each parameter, by plain backward passes."""
    rows: dict[str, list[torch.Tensor]] = {}
    for batch in batches:
        model.zero_grad()
        loss_of(model)(batch).backward()
        for name, parameter in model.named_parameters():
            rows.setdefault(name, []).append(parameter.grad.flatten().clone())
    model.zero_grad()
    return {name: torch.stack(gradients) for name, gradients in rows.items()}


def test_against_all_gradients_at_once():
    model, batches = small(), data(7)
    found = expected_gradient_norms(model, iter(batches), loss_of(model))
    expected = table(model, batches)
    assert list(found) == ["0.weight", "0.bias", "2.weight"]
    for name, g in expected.items():
        norms = found[name]
        assert norms.batches == 7
        assert norms.mean_of_norms == pytest.approx(float(g.norm(dim=1).mean()), rel=1e-12)
        assert norms.mean_of_squares == pytest.approx(float(g.square().sum(1).mean()), rel=1e-12)
        assert norms.norm_of_mean == pytest.approx(float(g.mean(0).norm()), rel=1e-12)
        assert norms.noise == pytest.approx(float(g.var(0).sum()), rel=1e-12)
        # A U-statistic: the mean product of the gradients of two different batches.
        products = g @ g.T
        pairs = float(products.sum() - products.trace()) / (7 * 6)
        assert norms.expected_squared == pytest.approx(pairs, rel=1e-10)


def test_one_batch_is_what_gradient_norms_gives():
    model, (batch,) = small(), data(1)
    found = expected_gradient_norms(model, [batch], loss_of(model))
    loss_of(model)(batch).backward()
    for name, plain in gradient_norms(model).items():
        assert found[name].mean_of_norms == pytest.approx(plain, rel=1e-6)
        assert found[name].norm_of_mean == pytest.approx(plain, rel=1e-6)
        assert math.isnan(found[name].expected_squared)
        assert math.isnan(found[name].noise)


@examples(25)
@given(order=st.permutations(range(6)))
def test_the_order_of_batches_does_not_matter(order):
    model, batches = small(), data(6)
    first = expected_gradient_norms(model, batches, loss_of(model))
    second = expected_gradient_norms(model, [batches[i] for i in order], loss_of(model))
    for name, norms in first.items():
        assert second[name].norm_of_mean == pytest.approx(norms.norm_of_mean, rel=1e-10)
        assert second[name].mean_of_norms == pytest.approx(norms.mean_of_norms, rel=1e-10)


def test_the_bias_and_its_removal():
    """g ~ N(μ, σ²I) in 20 dimensions, 4 batches: ‖ḡ‖² has the mean ‖μ‖² + 20σ²/4, four times
    ‖μ‖².
    """
    torch.manual_seed(0)
    mu, sigma = torch.full((20,), 0.1), (0.6 * 4 / 20) ** 0.5
    model = nn.ParameterDict({"w": nn.Parameter(torch.zeros(20))})
    biased, unbiased = [], []
    for _ in range(2000):
        draws = mu + sigma * torch.randn(4, 20)
        norms = expected_gradient_norms(model, draws, lambda g: model["w"] @ g)["w"]
        biased.append(norms.norm_of_mean**2)
        unbiased.append(norms.expected_squared)
    # Standard errors of these means are 0.0056 and 0.0064.
    assert torch.tensor(biased).mean() == pytest.approx(0.8, abs=0.03)
    assert torch.tensor(unbiased).mean() == pytest.approx(0.2, abs=0.03)
    assert min(unbiased) < 0


def test_gradients_and_the_generator_stay_as_they_are():
    model, batches = small(), data(3)
    model[0].weight.grad = torch.ones(3, 4).double()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    with torch.no_grad():
        expected_gradient_norms(model, batches, loss_of(model))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model[0].weight.grad, torch.ones(3, 4).double())
    assert model[2].weight.grad is None


def test_memory_does_not_grow_with_the_batches():
    """As many live tensors before the 12th batch as before the 2nd."""
    begin()
    model, seen = small(), []

    def batches():
        for i in range(12):
            if i in (0, 1, 11):
                seen.append(live_tensors())
            yield torch.full((5, 4), float(i), dtype=torch.float64)

    expected_gradient_norms(model, batches(), loss_of(model))
    # The means are there before the first batch; the loop holds one batch afterwards.
    assert seen[1] - seen[0] <= 1
    assert seen[2] == seen[1]


def test_unused_and_frozen_parameters():
    model = nn.ModuleDict(
        {name: nn.Linear(2, 1, bias=False) for name in ("always", "once", "never", "frozen")}
    )
    model["frozen"].weight.requires_grad_(False)

    def loss(batch: int) -> torch.Tensor:
        x = torch.ones(2)
        used = ["always", "frozen", "once"] if batch == 1 else ["always", "frozen"]
        return sum(model[name](x).sum() for name in used)

    found = expected_gradient_norms(model, range(4), loss)
    assert list(found) == ["always.weight", "once.weight"]
    assert found["always.weight"].norm_of_mean == pytest.approx(2**0.5)
    assert found["once.weight"].norm_of_mean == pytest.approx(2**0.5 / 4)
    assert found["once.weight"].mean_of_norms == pytest.approx(2**0.5 / 4)
    assert found["once.weight"].mean_of_squares == pytest.approx(2 / 4)


def test_sparse_and_bfloat16_gradients():
    table_ = nn.Embedding(6, 3, sparse=True)
    found = expected_gradient_norms(
        table_, torch.tensor([[0, 0], [0, 4]]), lambda rows: table_(rows).sum()
    )
    assert found["weight"].norm_of_mean == pytest.approx(math.sqrt(3 * (1.5**2 + 0.5**2)))
    half = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    # A mean kept in bfloat16 would stop at 1: the 1000th part of 1 is below its precision.
    scales = [torch.ones(1, dtype=torch.bfloat16)] * 500 + [
        torch.zeros(1, dtype=torch.bfloat16)
    ] * 500
    found = expected_gradient_norms(half, scales, lambda x: half(x).sum())
    assert found["weight"].norm_of_mean == pytest.approx(0.5, rel=1e-4)


def test_a_broken_batch_shows():
    model, batches = small(), data(3)
    batches[1][0, 0] = math.nan
    assert math.isnan(
        expected_gradient_norms(model, batches, loss_of(model))["2.weight"].norm_of_mean
    )


def test_refusals():
    model = small()
    with pytest.raises(ValueError, match="no batches"):
        expected_gradient_norms(model, [], loss_of(model))
    with pytest.raises(ValueError, match=r"one number, got a tensor of shape \(5, 2\)"):
        expected_gradient_norms(model, data(1), model)
    with pytest.raises(ValueError, match="trainable"):
        expected_gradient_norms(model.requires_grad_(False), data(1), loss_of(model))
