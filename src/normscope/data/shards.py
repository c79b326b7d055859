"""Long arrays of numbers on the disk: written a piece at a time, in files of bounded size, and read through the map.

An array that fits into one file lies in `<stem>.<kind>`, such as `train.tokens`; a longer one in `<stem>.00000.<kind>`,
`<stem>.00001.<kind>` and so on. Numbers are little-endian.
"""

from collections.abc import Collection, Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .manifest import mapped

MOST_SHARD_BYTES = 2**29
"""Of one file: it can be copied, hashed and stored anywhere."""


class ShardWriter:
    """Writes one array, piece by piece; memory holds a piece."""

    def __init__(self, folder: Path, name: str, dtype: DTypeLike) -> None:
        """name: that of an array in one file, such as `train.tokens`."""
        self._folder, self._name = folder, name
        self._dtype = np.dtype(dtype)
        self._room = self._most = max(1, MOST_SHARD_BYTES // self._dtype.itemsize)
        self._shards = 0
        self._stream = (folder / name).open("wb")
        self.written = 0
        """Numbers so far."""

    def __enter__(self) -> Self:
        return self

    def append(self, numbers: NDArray[Any] | Sequence[int]) -> None:
        """Add numbers to the end."""
        array = np.ascontiguousarray(numbers, dtype=self._dtype)
        self.written += len(array)
        while len(array) > self._room:
            fits, array = array[: self._room], array[self._room :]
            self._write(fits)
            self._next_shard()
        self._write(array)

    def _write(self, array: NDArray[Any]) -> None:
        # Through `write`, not `tofile`: the latter loses the error number that tells a full disk.
        self._stream.write(array.data)
        self._room -= len(array)

    def _next_shard(self) -> None:
        self._stream.close()
        if not self._shards:
            (self._folder / self._name).rename(self._folder / _shard(self._name, 0))
        self._shards += 1
        self._stream = (self._folder / _shard(self._name, self._shards)).open("wb")
        self._room = self._most

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


class Shards:
    """Files of numbers, mapped into memory, as one array that is never in memory as a whole."""

    def __init__(self, shards: Sequence[NDArray[Any]]) -> None:
        """Raises ValueError for none, or for different types of numbers."""
        if not shards or len({shard.dtype for shard in shards}) != 1:
            raise ValueError(f"need files of one type of numbers, got {[str(shard.dtype) for shard in shards]}")
        self._shards = list(shards)
        self._begins = [0, *accumulate(map(len, shards))]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._shards[0].dtype

    def __len__(self) -> int:
        return self._begins[-1]

    @overload
    def __getitem__(self, places: slice) -> NDArray[Any]: ...

    @overload
    def __getitem__(self, places: int) -> Any: ...

    def __getitem__(self, places: slice | int) -> Any:
        """A number, or a copy of a stretch. Raises IndexError outside, ValueError for steps other than 1."""
        if not isinstance(places, slice):
            place = range(len(self))[places]
            shard = int(np.searchsorted(self._begins, place, side="right")) - 1
            return self._shards[shard][place - self._begins[shard]]
        begin, end, step = places.indices(len(self))
        if step != 1:
            raise ValueError(f"stretches have a step of 1, got {step}")
        parts = [
            shard[max(begin - at, 0) : end - at]
            for shard, at, until in zip(self._shards, self._begins, self._begins[1:], strict=False)
            if at < end and begin < until
        ]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it in memory: NumPy calls this where an array is needed."""
        return np.asarray(self[:], dtype=dtype)

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """All of it in memory, as other numbers."""
        return self[:].astype(dtype)

    def tolist(self) -> list[Any]:
        """All of it as Python's numbers."""
        return list(self[:].tolist())


Numbers = NDArray[Any] | Shards
"""An array in memory, in one file or in several."""


def mapped_numbers(folder: Path, name: str, dtype: DTypeLike, files: Collection[str]) -> Numbers:
    """The array of that name. files: names of all that the folder holds. Raises UserError for one that is missing."""
    if name in files or _shard(name, 0) not in files:
        return mapped(folder / name, dtype)
    several = [_shard(name, number) for number in range(len(files)) if _shard(name, number) in files]
    return Shards([mapped(folder / one, dtype) for one in several])


def _shard(name: str, number: int) -> str:
    stem, _, kind = name.rpartition(".")
    return f"{stem}.{number:05d}.{kind}"
