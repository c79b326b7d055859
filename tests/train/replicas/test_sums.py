"""Sums in a fixed tree, and the vectors that gradients travel in."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from normscope.train import sums
from normscope.train.group import ALONE
from normscope.train.sums import TreeSum, gradient_sum


def by_hand(values: list[torch.Tensor]) -> torch.Tensor:
    """The tree as one would draw it: the largest power of two of leaves on the left, the rest on the right."""
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
    """Higham 1993, section 3: the error is at most about log2(n) roundings of the sum of the absolute values."""
    tree = TreeSum()
    for value in values:
        tree.push([torch.tensor(value)])
    exact = sum(map(Fraction, values))
    rounding = 2.0**-24 * math.ceil(math.log2(len(values)) + 1)
    assert abs(Fraction(tree.total()[0].item()) - exact) <= rounding * sum(abs(Fraction(v)) for v in values)


def test_buckets_hold_one_dtype_are_of_bounded_size_and_bring_every_gradient_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sums, "_BUCKET_BYTES", 64)
    shapes = [(3,), (2, 5), (40,), (), (4,)]
    dtypes = [torch.float32, torch.float32, torch.float32, torch.float64, torch.float64]
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape, dtype in zip(shapes, dtypes, strict=True)]
    wanted = [torch.randn(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    for parameter, gradient in zip(parameters, wanted, strict=True):
        parameter.grad = gradient.clone()
    buckets = list(sums._buckets(parameters, parts=3))
    assert [len(bucket.parameters) for bucket in buckets] == [2, 1, 2]
    assert all(bucket.padded % 3 == 0 for bucket in buckets)
    vectors = [bucket.taken() for bucket in buckets]
    assert all(parameter.grad is None for parameter in parameters)
    for bucket, vector in zip(buckets, vectors, strict=True):
        bucket.put(vector)
    for parameter, gradient in zip(parameters, wanted, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)


def test_alone_ordered_and_accumulated_are_the_same_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(7)]
    found = []
    for ordered in (True, False):
        layer = nn.Linear(3, 2, bias=False, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.fill_(0.5)
        total = gradient_sum(list(layer.parameters()), ALONE, ordered=ordered)
        for x in inputs:
            layer(x).square().sum().backward()
            total.add([0])
        total.finish()
        assert layer.weight.grad is not None
        found.append(layer.weight.grad)
    torch.testing.assert_close(*found, rtol=1e-14, atol=0)
