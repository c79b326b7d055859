"""Moving weights along a direction: exact ways back."""

import pytest
import torch
from torch import nn

from normscope.measure.passes import euclidean_norm, mean_square, moved


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    loss = nn.functional.cross_entropy(model(torch.randn(11, 5)), torch.randint(3, (11,)))
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [3, 1000])
def test_sizes_lose_no_digit_over_many_entries(dtype, columns):
    # Sums in float32 of so many entries of one size would stray by a thousandth.
    x = (100 + torch.randn(columns, 1000, generator=torch.Generator().manual_seed(0))).to(dtype).T
    square = float((x.double() ** 2).sum())
    assert euclidean_norm(x) == pytest.approx(square**0.5, rel=1e-13)
    assert mean_square(x) == pytest.approx(square / x.numel(), rel=1e-13)


def test_every_bit_comes_back():
    model = net()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    direction = {name: -step for name, step in gradients(model).items()}
    weights = dict(model.named_parameters())
    for distance in (1e-7, 0.3, 1e9):
        with moved(weights, direction, distance):
            for name, weight in model.named_parameters():
                expected = before[name].double() + distance * direction[name].double()
                torch.testing.assert_close(weight.double(), expected, rtol=1e-5, atol=1e-6)
        assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())
    with pytest.raises(RuntimeError, match="stop"), moved(weights, direction, 1.0):
        raise RuntimeError("stop")
    assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())
    assert all(weight.grad is None for weight in model.parameters())


def test_weights_without_a_direction_stay():
    model = net()
    direction = {name: step for name, step in gradients(model).items() if name.startswith("0.")}
    before = model[2].weight.detach().clone()
    with moved(dict(model.named_parameters()), direction, 1.0):
        assert torch.equal(model[2].weight, before)
