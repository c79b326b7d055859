"""The base of all corpora's batches, and random orders and choices that depend on their arguments
alone.

They are the same under every version of Python and NumPy.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

_Item = TypeVar("_Item")


def permutation(size: int, *seeds: int) -> NDArray[np.int64]:
    """0 to `size` - 1 in an order that depends on nothing but the arguments."""
    # Raw random bits, sorted, and not `Generator.permutation`: NumPy keeps the bits of a generator
    # the same for ever, its methods it may change, and a run is resumed in the same order under
    # another version.
    return np.argsort(raw_bits(size, *seeds), kind="stable").astype(np.int64)


def raw_bits(size: int, *seeds: int) -> NDArray[np.uint64]:
    """Returns so many random 64-bit numbers, which depend on nothing but the arguments."""
    return np.random.Philox(np.random.SeedSequence(list(seeds))).random_raw(size)


class StableDraw:
    """Random choices from `random.Random.random` alone, whose sequence Python promises to keep
    between versions.
    """

    def __init__(self, key: str) -> None:
        self._random = random.Random(
            int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
        ).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def below(self, number: int) -> int:
        """Returns one of 0 to `number` - 1."""
        return int(self._random() * number)

    def one_of(self, items: Sequence[_Item]) -> _Item:
        return items[self.below(len(items))]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBatches:
    """The batches of epochs, with every sequence once in each, in random order."""

    sequences: int
    batch_sequences: int
    seed: int

    def __len__(self) -> int:
        """Batches of an epoch; the last may be smaller."""
        return -(-self.sequences // self.batch_sequences)

    def micro_batch(self, number: int) -> tuple[int, NDArray[np.int64]]:
        """Epoch and sequence indices of a batch, counted from 0 over all epochs."""
        epoch, place = divmod(number, len(self))
        epoch_order = _order(self.sequences, self.seed, epoch)
        return epoch, epoch_order[place * self.batch_sequences : (place + 1) * self.batch_sequences]

    def in_order(self) -> list[NDArray[np.int64]]:
        """Returns one epoch as the sequences lie: what validation goes through."""
        return np.split(
            np.arange(self.sequences),
            range(self.batch_sequences, self.sequences, self.batch_sequences),
        )


@lru_cache(maxsize=4)
def _order(sequences: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return permutation(sequences, seed, epoch)


class Batch:
    """The base of all corpora's batches: a dataclass of tensors, of which some go to the device."""

    on_device: ClassVar[tuple[str, ...]]
    """The names of those; lengths stay on the CPU, for masks and counts that must not wait for a
    device.
    """

    def to(self, device: torch.device | str) -> Self:
        """The same batch with its tensors on `device`; lengths stay on the CPU.

        To CUDA they go from pinned memory, in the order of the device's work: a copy from ordinary
        memory would wait for all of it to be done. torch keeps pinned memory, and gives it out
        again when the copy has arrived.
        """
        cuda = torch.device(device).type == "cuda"
        batch: Any = self.pin_memory() if cuda else self
        sent = {name: getattr(batch, name).to(device, non_blocking=cuda) for name in self.on_device}
        return replace(batch, **sent)  # type: ignore[no-any-return]

    def pin_memory(self) -> Self:
        """The same batch with what goes to the device in pinned memory; what is there already is
        not copied.

        torch's DataLoader calls it by this name, in a thread of its own.
        """
        pinned = {name: getattr(self, name).pin_memory() for name in self.on_device}
        return replace(self, **pinned)  # type: ignore[type-var]
