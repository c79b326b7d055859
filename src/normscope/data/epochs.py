"""Batches of a fixed number of sequences, in an order that depends on seed and epoch alone."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .order import Order, order


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBatches:
    """Every sequence once an epoch, in random order."""

    sequences: int
    batch_sequences: int
    seed: int

    def __post_init__(self) -> None:
        if self.sequences < 1 or self.batch_sequences < 1:
            raise ValueError(f"need at least 1 sequence and 1 a batch, got {self.sequences} and {self.batch_sequences}")

    def __len__(self) -> int:
        """Batches of an epoch; the last may be smaller."""
        return -(-self.sequences // self.batch_sequences)

    def micro_batch(self, number: int) -> tuple[int, NDArray[np.int64]]:
        """Epoch and sequence indices of a batch, counted from 0 over all epochs."""
        epoch, place = divmod(number, len(self))
        epoch_order = _order(self.sequences, self.seed, epoch)
        return epoch, epoch_order[place * self.batch_sequences : (place + 1) * self.batch_sequences]

    def in_order(self) -> list[NDArray[np.int64]]:
        """One epoch as the sequences lie: what validation goes through."""
        return np.split(np.arange(self.sequences), range(self.batch_sequences, self.sequences, self.batch_sequences))


@lru_cache(maxsize=4)
def _order(sequences: int, seed: int, epoch: int) -> Order:
    return order(sequences, seed, epoch)
