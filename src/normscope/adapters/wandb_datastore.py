"""W&B's datastore, `run-ID.wandb`: a log in LevelDB's framing, of which each record is a protocol
buffer.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..history.meant import meant_by
from ..history.names import numbers_in
from ..history.reading.readers import of_rows
from ..history.record import History, TrainingRecipe
from ..limits.reading import parse_json

_MAGIC, _HEADER_BYTES = b":W&B", 7
_BLOCK_BYTES = 32768
"""A record that does not fit into what is left of a block goes on in the next."""
_FRAME = struct.Struct("<IHB")
"""A part's CRC-32, its length, and whether it is whole, the first, a middle or the last one of its
record.
"""
_WHOLE = 1
_FIRST = 2
_MIDDLE = 3
_LAST = 4
_VARINT = 0
_EIGHT = 1
_BYTES = 2
_FOUR = 5
"""Wire types of protocol buffers."""
_HISTORY = 2
_ITEM = 1
_STEP = 2
_RUN = 17
_CONFIG_OF_RUN = 4
_CONFIG = 5
_CHANGED = 1
_KEY = 1
_NESTED_KEY = 2
_INTEGER = 5
_NUMBER = 6
_VALUE_JSON = 16
"""Numbers of fields in wandb_internal.proto: of Record, HistoryRecord and HistoryItem, RunRecord
and ConfigRecord."""

_Field = tuple[int, int | bytes]


def of_datastore(file: Path) -> History:
    """Returns the history in a datastore; of one whose end is torn, what came before. Raises
    ValueError as `history_of` does, and for a file that is no datastore.
    """
    content = file.read_bytes()
    if content[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"{file} is no datastore of W&B: it does not begin with {_MAGIC.decode()}")
    lines: list[dict[str, float]] = []
    settings: dict[str, Any] = {}
    for record in _records(content):
        lines += [_line(part) for part in _values_of_field(record, _HISTORY)]
        settings |= _settings(record)
    recipe = meant_by(settings, TrainingRecipe())
    return of_rows(file, lines, range(1, len(lines) + 1), "entry", recipe)


def _settings(record: bytes) -> dict[str, Any]:
    """Returns the settings in a record, by name: those of the run's beginning, and changes."""
    runs = _values_of_field(record, _RUN)
    configs = [one for run in runs for one in _values_of_field(run, _CONFIG_OF_RUN)]
    configs += _values_of_field(record, _CONFIG)
    items = (item for one in configs for item in _values_of_field(one, _CHANGED))
    return dict(filter(None, map(_named, items)))


def _records(content: bytes) -> Iterator[bytes]:
    """Yields records until the end, or the first part that is torn."""
    at, parts = _HEADER_BYTES, b""
    while at + _FRAME.size <= len(content):
        if _BLOCK_BYTES - at % _BLOCK_BYTES < _FRAME.size:
            at += _BLOCK_BYTES - at % _BLOCK_BYTES
            continue
        checksum, length, kind = _FRAME.unpack_from(content, at)
        part = content[at + _FRAME.size : at + _FRAME.size + length]
        if len(part) < length or zlib.crc32(part, zlib.crc32(bytes([kind]))) != checksum:
            return
        at += _FRAME.size + length
        parts = part if kind in (_WHOLE, _FIRST) else parts + part
        if kind in (_WHOLE, _LAST):
            yield parts


def _fields(message: bytes) -> Iterator[_Field]:
    """Numbers of fields with their values: an integer, or bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        length, at = (
            (8, at) if kind == _EIGHT else (4, at) if kind == _FOUR else _varint(message, at)
        )
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; and where it ends."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, at


def _values_of_field(message: bytes, number: int) -> list[bytes]:
    return [
        value for field, value in _fields(message) if field == number and isinstance(value, bytes)
    ]


def _line(history: bytes) -> dict[str, float]:
    """Names with numbers; what is text or a table is left out."""
    values = numbers_in(dict(filter(None, map(_named, _values_of_field(history, _ITEM)))))
    steps = [
        value
        for step in _values_of_field(history, _STEP)
        for number, value in _fields(step)
        if number == 1
    ]
    return {"_step": float(int(steps[0]))} | values if steps else values


def _named(item: bytes) -> tuple[str, object] | None:
    """Returns a name with its value, which newer versions write as a number and older ones as
    JSON.
    """
    names = _values_of_field(item, _KEY) or _values_of_field(item, _NESTED_KEY)
    name = "/".join(part.decode("utf-8", "replace") for part in names)
    for number, value in _fields(item):
        if number == _VALUE_JSON and isinstance(value, bytes):
            return name, parse_json(value.decode("utf-8", "replace"), infinite=True)
        if number == _NUMBER and isinstance(value, bytes) and len(value) == 8:
            return name, struct.unpack("<d", value)[0]
        if number == _INTEGER and isinstance(value, int):
            return name, value >> 1 ^ -(value & 1)
    return None
