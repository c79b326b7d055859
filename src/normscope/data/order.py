"""Random orders and choices that depend on their arguments alone, under every version of Python and NumPy."""

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

MOST_SORTED = 2**22
"""Up to here an order is sorted random bits, 32 MiB of numbers; longer ones are computed place by place."""
_ROUNDS = 8


def permutation(size: int, *seeds: int) -> NDArray[np.int64]:
    """0 to `size` - 1 in an order that depends on nothing but the arguments."""
    # Raw random bits, sorted, and not `Generator.permutation`: NumPy keeps the bits of a generator the same for ever,
    # its methods it may change, and a run is resumed in the same order under another version.
    return np.argsort(raw_bits(size, *seeds), kind="stable").astype(np.int64)


def raw_bits(size: int, *seeds: int) -> NDArray[np.uint64]:
    """So many random 64-bit numbers, which depend on nothing but the arguments."""
    return np.random.Philox(np.random.SeedSequence(list(seeds))).random_raw(size)


class KeyedOrder:
    """An order of any length, each place of which is computed by itself: a keyed bijection of the numbers below `size`.

    A Feistel network of eight rounds (Luby and Rackoff 1988: four with ideal functions cannot be told from a random
    permutation) over the least number of bits that holds `size`; what it takes out of the range is put in again until
    it comes to lie inside, which keeps it a bijection (Black and Rogaway 2002, "cycle walking") and takes fewer than
    two turns on average. The functions of the rounds are the finaliser of MurmurHash3 (fmix64, A. Appleby).
    """

    def __init__(self, size: int, *seeds: int) -> None:
        """Raises ValueError for a size below 1 or beyond 2^62."""
        if not 1 <= size <= 2**62:
            raise ValueError(f"an order has 1 to 2^62 places, got {size}")
        self._size = size
        bits = max(2, (size - 1).bit_length())
        self._low, self._high = np.uint64(bits // 2), np.uint64(bits - bits // 2)
        self._keys = raw_bits(_ROUNDS, *seeds)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, places: slice) -> NDArray[np.int64]: ...

    @overload
    def __getitem__(self, places: int) -> np.int64: ...

    def __getitem__(self, places: slice | int) -> NDArray[np.int64] | np.int64:
        """What stands at these places. Raises IndexError for one outside."""
        if isinstance(places, int):
            found: np.int64 = self._at(np.array([range(self._size)[places]], dtype=np.uint64))[0]
            return found
        return self._at(np.arange(*places.indices(self._size), dtype=np.uint64))

    def _at(self, places: NDArray[np.uint64]) -> NDArray[np.int64]:
        values = self._turned(places)
        while (outside := np.flatnonzero(values >= self._size)).size:
            values[outside] = self._turned(values[outside])
        return values.astype(np.int64)

    def _turned(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The network once. The halves change places every round, and with them their lengths."""
        low, high = self._low, self._high
        for key in self._keys:
            left, right = values >> low, values & _mask(low)
            left = (left ^ _mixed(right ^ key)) & _mask(high)
            values = (right << high) | left
            low, high = high, low
        return values


Order = NDArray[np.int64] | KeyedOrder


def order(size: int, *seeds: int) -> Order:
    """0 to `size` - 1 in an order that depends on nothing but the arguments; never over 32 MiB of it in memory."""
    return permutation(size, *seeds) if size <= MOST_SORTED else KeyedOrder(size, *seeds)


def _mask(bits: np.uint64) -> np.uint64:
    return np.uint64(2 ** int(bits) - 1)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """fmix64: every bit of the result hangs on every bit of the value."""
    shift = np.uint64(33)
    for factor in (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)):
        values = (values ^ (values >> shift)) * factor
    return values ^ (values >> shift)


_Item = TypeVar("_Item")


class StableDraw:
    """Random choices from `random.Random.random` alone, whose sequence Python promises to keep between versions."""

    def __init__(self, key: str) -> None:
        self._random = random.Random(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def below(self, number: int) -> int:
        """One of 0 to `number` - 1."""
        return int(self._random() * number)

    def one_of(self, items: Sequence[_Item]) -> _Item:
        return items[self.below(len(items))]
