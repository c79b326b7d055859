"""Orders that depend on numbers alone."""

import numpy as np
from numpy.typing import NDArray


def permutation(size: int, *seeds: int) -> NDArray[np.int64]:
    """0 to `size` - 1 in an order that depends on nothing but the arguments."""
    # Raw random bits, sorted, and not `Generator.permutation`: NumPy keeps the bits of a generator the same for ever,
    # its methods it may change, and a run is resumed in the same order under another version.
    return np.argsort(raw_bits(size, *seeds), kind="stable").astype(np.int64)


def raw_bits(size: int, *seeds: int) -> NDArray[np.uint64]:
    """So many random 64-bit numbers, which depend on nothing but the arguments."""
    return np.random.Philox(np.random.SeedSequence(list(seeds))).random_raw(size)
