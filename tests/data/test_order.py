"""Orders and bits that depend on numbers alone, for ever."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normscope.data.order import MOST_SORTED, KeyedOrder, order, permutation, raw_bits


@given(st.integers(0, 200), st.lists(st.integers(0, 2**40), min_size=1, max_size=3))
def test_an_order_holds_everything_once_and_repeats(size: int, seeds: list[int]) -> None:
    order = permutation(size, *seeds)
    assert sorted(order.tolist()) == list(range(size))
    assert order.dtype == np.int64
    assert order.tolist() == permutation(size, *seeds).tolist()


def test_every_seed_counts_and_so_does_its_place() -> None:
    orders = {tuple(permutation(40, *seeds)) for seeds in [(1,), (1, 2), (2, 1), (2, 2), (12,), (1, 0, 2)]}
    assert len(orders) == 6


def test_bits_and_orders_are_those_of_philox_for_ever() -> None:
    """Philox and SeedSequence are streams that NumPy keeps stable; a change here would change every run's batches."""
    assert [int(bits) for bits in raw_bits(3, 7, 3)] == BITS
    assert permutation(10, 7, 3).tolist() == [7, 1, 9, 6, 0, 4, 2, 8, 3, 5]  # NumPy 2.4.6
    assert raw_bits(2, 7, 3).tolist() == raw_bits(3, 7, 3).tolist()[:2]


def test_bits_are_even() -> None:
    """Each of 64 bits is set in half of 10,000 numbers; 5 standard deviations are 250."""
    bits = raw_bits(10_000, 1)
    for place in range(64):
        assert abs(int(((bits >> np.uint64(place)) & np.uint64(1)).sum()) - 5000) < 250


BITS = [7619040545023290255, 3366098749635922687, 12005939049405020477]
LONG = [241088083433, 524649326816, 332179810768, 967454076795, 915477043542]


@settings(max_examples=30)
@given(st.integers(1, 100), st.lists(st.integers(0, 2**40), min_size=1, max_size=3))
def test_a_computed_order_holds_everything_once_and_is_the_same_for_each_place(size: int, seeds: list[int]) -> None:
    computed = KeyedOrder(size, *seeds)
    whole = computed[:]
    assert len(computed) == size
    assert sorted(whole.tolist()) == list(range(size))
    assert [int(computed[place]) for place in (0, size // 2, -1)] == whole[[0, size // 2, -1]].tolist()
    assert computed[size // 3 : 2 * size // 3].tolist() == whole[size // 3 : 2 * size // 3].tolist()


def test_a_long_order_takes_no_memory_and_stays_the_same_for_ever() -> None:
    tracemalloc.start()
    long = order(10**12, 7, 3)
    some = long[123_456_789_000:123_456_789_005]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert some.tolist() == LONG
    assert len(set(long[:10_000].tolist())) == 10_000
    with pytest.raises(IndexError):
        long[10**12]
    for size in (0, 2**62 + 1):
        with pytest.raises(ValueError, match=r"1 to 2\^62 places"):
            KeyedOrder(size, 1)


def test_short_orders_are_those_of_before() -> None:
    assert isinstance(order(MOST_SORTED + 1, 1), KeyedOrder)
    assert np.array_equal(order(1000, 7, 3)[:], permutation(1000, 7, 3))


def test_a_computed_order_is_as_even_as_chance() -> None:
    """Where each number stands, who its neighbour is, and how two keys agree, against what permutations have."""
    size, keys = 1000, 60
    orders = np.stack([KeyedOrder(size, key)[:] for key in range(keys)])
    # Mean position of the first hundred numbers: (size - 1) / 2, with the deviation of a mean of uniform numbers.
    places = np.argsort(orders, axis=1)[:, :100]
    assert abs(places.mean() - (size - 1) / 2) < 5 * size / math.sqrt(12 * places.size)
    # Neighbours one apart, and numbers that two keys put at one place: one of each on average (Poisson).
    successors = int((np.diff(orders, axis=1) == 1).sum())
    agreeing = int((orders[1:] == orders[:-1]).sum())
    for count, expected in ((successors, keys), (agreeing, keys - 1)):
        assert abs(count - expected) < 5 * math.sqrt(expected)
    # Equally many in each of ten parts of the order, from each of ten parts of the numbers.
    cells = np.histogram2d(np.tile(np.arange(size), keys), orders.ravel(), bins=10)[0]
    assert abs(cells - size * keys / 100).max() < 5 * math.sqrt(size * keys / 100)
