"""Orders and bits that depend on numbers alone, for ever."""

import numpy as np
from hypothesis import given, strategies as st

from normscope.data.batches import permutation, raw_bits


@given(st.integers(0, 200), st.lists(st.integers(0, 2**40), min_size=1, max_size=3))
def test_an_order_holds_everything_once_and_repeats(size: int, seeds: list[int]) -> None:
    order = permutation(size, *seeds)
    assert sorted(order.tolist()) == list(range(size))
    assert order.dtype == np.int64
    assert order.tolist() == permutation(size, *seeds).tolist()


def test_every_seed_counts_and_so_does_its_place() -> None:
    orders = {
        tuple(permutation(40, *seeds)) for seeds in [(1,), (1, 2), (2, 1), (2, 2), (12,), (1, 0, 2)]
    }
    assert len(orders) == 6


def test_bits_and_orders_are_those_of_philox_for_ever() -> None:
    """Philox and SeedSequence are streams that NumPy keeps stable; a change here would change every
    run's batches.
    """
    assert [int(bits) for bits in raw_bits(3, 7, 3)] == BITS
    assert permutation(10, 7, 3).tolist() == [7, 1, 9, 6, 0, 4, 2, 8, 3, 5]  # NumPy 2.4.6
    assert raw_bits(2, 7, 3).tolist() == raw_bits(3, 7, 3).tolist()[:2]


def test_bits_are_even() -> None:
    """Each of 64 bits is set in half of 10,000 numbers; 5 standard deviations are 250."""
    bits = raw_bits(10_000, 1)
    for place in range(64):
        assert abs(int(((bits >> np.uint64(place)) & np.uint64(1)).sum()) - 5000) < 250


BITS = [7619040545023290255, 3366098749635922687, 12005939049405020477]


def test_positions_are_shuffled_evenly() -> None:
    """Each of 8 numbers stands first in about 1/8 of 4,000 epochs; 5 standard deviations are
    105.
    """
    first = [int(permutation(8, 0, epoch)[0]) for epoch in range(4000)]
    assert all(abs(count - 500) < 105 for count in np.bincount(first, minlength=8))
