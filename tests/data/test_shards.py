"""Long arrays in several files: the same numbers, whatever the size of the files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normscope.data import folder as data_folder
from normscope.data.folder import Shards, ShardWriter, mapped_numbers
from normscope.errors import UserError


@given(
    pieces=st.lists(st.lists(st.integers(0, 65_535), max_size=9), min_size=1, max_size=5),
    in_a_shard=st.integers(1, 12),
    data=st.data(),
)
@settings(max_examples=40)
def test_what_is_written_is_read(
    pieces: list[list[int]], in_a_shard: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    numbers = [number for piece in [*pieces, [1]] for number in piece]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_folder, "MOST_SHARD_BYTES", 2 * in_a_shard)
        with ShardWriter(folder, "train.tokens", "<u2") as writer:
            for piece in [*pieces, [1]]:
                writer.append(piece)
            assert writer.written == len(numbers)
    names = {path.name for path in folder.iterdir()}
    files = -(-len(numbers) // in_a_shard)
    wanted = {f"train.{number:05d}.tokens" for number in range(files)} if files > 1 else {"train.tokens"}
    assert names == wanted
    read = mapped_numbers(folder, "train.tokens", "<u2", names)
    assert np.asarray(read).tolist() == numbers
    assert len(read) == len(numbers)
    assert read.dtype == np.uint16
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(numbers))] * 2)))
    assert read[begin:end].tolist() == numbers[begin:end]
    assert [int(read[place]) for place in range(-len(numbers), len(numbers))] == numbers * 2


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.tokens: missing or damaged"):
        mapped_numbers(tmp_path, "train.tokens", "<u2", {"valid.tokens"})
    with pytest.raises(ValueError, match="one type of numbers"):
        Shards([np.zeros(1, np.uint16), np.zeros(1, np.int32)])
    both = Shards([np.arange(3), np.arange(2)])
    with pytest.raises(IndexError):
        both[5]
    with pytest.raises(ValueError, match="a step of 1"):
        both[::2]
