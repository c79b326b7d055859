"""The gradient of an update of several batches: sums in a fixed tree, and parameters that no batch
reaches.
"""

import math
from fractions import Fraction
from typing import Any

import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn
from torch.nn import functional

from normscope.train import Objective
from normscope.train.gradients import TreeSum, UpdateGradients
from normscope.train.protocol import Feed

CPU = torch.device("cpu")


def by_hand(values: list[Tensor]) -> Tensor:
    """The tree as one would draw it: the largest power of two of leaves on the left, the rest on
    the right.
    """
    if len(values) == 1:
        return values[0]
    left = 1 << (len(values) - 1).bit_length() - 1
    return by_hand(values[:left]) + by_hand(values[left:])


@given(st.integers(1, 40), st.integers(0, 1000))
def test_the_tree_is_that_of_the_numbers(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(3, generator=generator) * 10.0 ** (i % 7 - 3) for i in range(count)]
    tree, most = TreeSum(), 0
    for value in values:
        tree.push([value.clone()])
        most = max(most, len(tree._waiting))
    assert torch.equal(tree.total()[0], by_hand(values))
    assert most <= math.floor(math.log2(count)) + 1
    assert not tree._waiting


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=64))
def test_the_tree_is_as_exact_as_pairwise_sums_are(values: list[float]) -> None:
    """Higham 1993, section 3: the error is at most about log2(n) roundings of the sum of the
    absolute values.
    """
    tree = TreeSum()
    for value in values:
        tree.push([torch.tensor(value)])
    exact = sum(map(Fraction, values))
    rounding = 2.0**-24 * math.ceil(math.log2(len(values)) + 1)
    assert abs(Fraction(tree.total()[0].item()) - exact) <= rounding * sum(
        abs(Fraction(v)) for v in values
    )


class Unequal(Objective):
    """Batches of different lengths; in every second one a part of the model has no share."""

    device = CPU
    micro_batches_per_epoch = 8

    def prepare(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(number)
        return torch.randn(3 + number, 4, generator=generator, dtype=torch.float64)

    def target_tokens(self, batch: Tensor) -> int:
        return len(batch)

    def loss_sums(self, model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
        parts: Any = model
        hidden = parts["always"](batch)
        loss = (parts["sometimes"](hidden) if len(batch) % 2 else hidden).square().sum()
        return loss, loss.detach()

    def validate(self, model: nn.Module) -> dict[str, float]:
        raise AssertionError("nothing is validated here")


def test_gradients_are_those_of_autograd_and_what_no_batch_reaches_has_none() -> None:
    torch.manual_seed(0)
    parts = {
        name: nn.Linear(4, 4, dtype=torch.float64) for name in ("always", "sometimes", "never")
    }
    model, objective = nn.ModuleDict(parts), Unequal()
    feed = Feed(objective, workers=0, end=8, device=CPU)
    update = UpdateGradients(
        model, objective, forward_model=model, feed=feed, seed=1, device=CPU, precision="fp32"
    )
    losses = update(range(1, 6))
    batches = [objective.prepare(number) for number in range(1, 6)]
    tokens = sum(map(len, batches))
    mean = sum(objective.loss_sums(model, batch)[0] for batch in batches) / tokens
    assert losses.tokens == tokens
    assert functional.l1_loss(torch.tensor(losses.loss, dtype=torch.float64), mean) < 1e-12
    reached = [*parts["always"].parameters(), *parts["sometimes"].parameters()]
    for parameter, gradient in zip(reached, torch.autograd.grad(mean, reached), strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-14)
    assert all(parameter.grad is None for parameter in parts["never"].parameters())
