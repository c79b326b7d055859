"""Rows of numbers that are made once and read in any order: few stay in memory, many go to a file without a name."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from ..files import disk_errors

MOST_IN_MEMORY = 2**19
"""Rows: 20 MiB where each has five numbers."""


def spilled(rows: Iterable[Sequence[int]], columns: int, doing: str) -> NDArray[np.int64]:
    """The rows as an array (rows, columns), never more than `MOST_IN_MEMORY` of them in memory at a time.

    A longer array is the map of a file in the folder that the system has for temporary ones (`TMPDIR` names another).
    It has no name there, so that nothing is left of it when the process ends, however it ends. doing: what is made,
    such as "packing sentence pairs", for the UserError that is raised where that folder is full or cannot be written.
    """
    blocks = _blocks(iter(rows), columns)
    first = next(blocks)
    if len(first) < MOST_IN_MEMORY:
        return first
    place = tempfile.gettempdir()
    with (
        disk_errors(f"{doing} into a file in {place} (set TMPDIR for another folder)"),
        tempfile.TemporaryFile(dir=place) as file,
    ):
        for block in chain([first], blocks):
            file.write(block.data)
        file.flush()
        return np.memmap(file, np.int64, "r").reshape(-1, columns)


def _blocks(rows: Iterator[Sequence[int]], columns: int) -> Iterator[NDArray[np.int64]]:
    """As many rows at a time as may be in memory; the last block, and only this one, has fewer, or none."""
    while True:
        numbers = chain.from_iterable(islice(rows, MOST_IN_MEMORY))
        block = np.fromiter(numbers, dtype=np.int64).reshape(-1, columns)
        yield block
        if len(block) < MOST_IN_MEMORY:
            return
