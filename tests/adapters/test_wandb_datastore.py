"""W&B's datastore, written here byte by byte: records in parts over blocks, both ways in which
values are kept.
"""

import json
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from normscope.errors import UserError
from normscope.targets.logs import history_at

BLOCK = 32768


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def field(number: int, value: int | float | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def history(update: int, *, typed: bool) -> bytes:
    """A record of what was logged at an update, under a step of W&B's own that is 100 more."""
    loss = field(6, 3.0 - update / 100) if typed else field(16, json.dumps(3.0 - update / 100))
    count = field(5, 2 * update) if typed else field(16, str(update))
    items = [
        field(1, "train/loss") + loss,
        field(1, "train/global_step") + count,
        field(1, "note") + field(16, '"text"'),
        field(2, "train") + field(2, "learning_rate") + field(16, "0.001"),
    ]
    body = b"".join(field(1, item) for item in items) + field(2, field(1, update + 100))
    return field(1, update) + field(2, body)


def datastore(records: list[bytes]) -> bytes:
    """In parts that end with their block."""
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        first, left = True, record
        while first or left:
            room = BLOCK - len(out) % BLOCK
            if room < 7:
                out += bytes(room)
                continue
            part, left = left[: room - 7], left[room - 7 :]
            kind = (1 if not left else 2) if first else (4 if not left else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
    return bytes(out)


@pytest.mark.parametrize("typed", [False, True])
def test_what_was_logged_is_read(typed: bool, tmp_path: Path) -> None:
    """Between the histories lies a record of another kind, longer than two blocks."""
    other = field(4, field(1, "x" * 70_000))
    records = [history(update, typed=typed) for update in range(1, 30)]
    file = tmp_path / "run-x.wandb"
    file.write_bytes(datastore([*records[:9], other, *records[9:]]))
    found = history_at(file)
    assert found.loss.updates == tuple(range(1, 30))
    assert found.loss.at(7) == pytest.approx(2.93)
    assert found.rate.at(29) == 0.001
    assert history_at(tmp_path).loss == found.loss


def test_of_a_torn_end_what_came_before_is_read(tmp_path: Path) -> None:
    whole = datastore([history(update, typed=False) for update in range(1, 30)])
    file = tmp_path / "run-x.wandb"
    file.write_bytes(whole[:-20])
    assert history_at(file).loss.updates == tuple(range(1, 29))
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    file.write_bytes(bytes(damaged))
    assert 5 < len(history_at(file).loss.updates) < 25


@given(st.binary(max_size=200))
def test_bytes_that_mean_nothing_are_refused_in_a_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "run-y.wandb"
    file.write_bytes(datastore([field(2, content), content]))
    with pytest.raises(UserError) as caught:
        history_at(file)
    assert "\n" not in str(caught.value)
