"""Texts of JSON lines: an object on each line, of which one field is the text."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...limits.reading import parse_json, shown
from ..lines import read_lines
from ..unpacking import Position

MOST_RECORD_BYTES = 2**24
"""Of one line: the longest books have a few million characters."""


def json_texts(path: Path, field: str, position: Position | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line from 1, text) of one field, blank lines apart; a null is a text without characters.

    field: the key, or `key.inner` inside an object. Raises UserError, with the line, for what is no object, a field
    that is not there or is no text, and all that `read_lines` refuses.
    """
    for number, line in read_lines(path, max_line_bytes=MOST_RECORD_BYTES, holds="JSON object", position=position):
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except ValueError as error:
            raise UserError(
                f"{path}:{number}: not JSON ({error}); give JSON lines, an object with a field {field!r} on each"
            ) from error
        if not isinstance(record, Mapping):
            raise UserError(
                f"{path}:{number}: {shown(record)} is no object; give one with a field {field!r} on each line"
            )
        text = _found(record, field)
        if text is not None and not isinstance(text, str):
            has = ", ".join(_names(record)) or "none"
            what = "no such field" if text is _ABSENT else f"{shown(text)}, not text"
            raise UserError(f"{path}:{number}: {field!r} is {what}; it has {has}; name the field of the text")
        yield number, text or ""


_ABSENT = object()


def _found(record: Mapping[str, Any], field: str) -> Any:
    if field in record:
        return record[field]
    value: Any = record
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def _names(record: Mapping[str, Any]) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from (shown(f"{name}.{inner}").strip("'") for inner in value)
        else:
            yield shown(name).strip("'")
