"""Rows in memory or in a file are the same rows, memory holds few of them, and nothing is left of the file."""

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.data.documents import pairs as packing
from normscope.data.documents.pairs import spilled
from normscope.errors import UserError

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(INT64, INT64), max_size=20), st.integers(1, 8))
def test_rows_are_what_they_were_whatever_fits_into_memory(rows: list[tuple[int, int]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MOST_IN_MEMORY", most)
        kept = spilled(rows, 2, "packing")
    assert isinstance(kept, np.memmap) == (len(rows) >= most)
    assert kept.shape == (len(rows), 2)
    assert kept.tolist() == [list(row) for row in rows]


def test_memory_does_not_grow_with_the_rows_and_the_folder_stays_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    peaks = []
    for count in (4_000, 40_000):
        tracemalloc.start()
        kept = spilled(((row, row * row, -row) for row in range(count)), 3, "packing")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert kept[count - 1].tolist() == [count - 1, (count - 1) ** 2, 1 - count]
        assert not list(tmp_path.iterdir())
    assert peaks[1] < 1.1 * peaks[0] < 40_000 * 3 * 8 / 2


def test_a_folder_without_room_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packing, "MOST_IN_MEMORY", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UserError, match=rf"packing into a file in {tmp_path} \(set TMPDIR.*: the disk is full"):
        spilled(rows(), 1, "packing")
