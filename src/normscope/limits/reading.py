"""Reading files that anyone may have written: JSON and TOML, within limits that are checked first.

Python's own readers take what no file of ours holds: they recurse as deeply as a file is nested,
keep the last of two equal keys without a word, and give infinities and integers of any length. What
is refused here is a ValueError whose text says what came and what is allowed; the callers, who know
what the file is for, add its name and what to do.
"""

import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

MOST_DEPTH = 64
"""Lists and tables within one another, and parts of a dotted key; files of ours have up to 8."""
MOST_TOML_BYTES = 2**18
MOST_JSON_BYTES = 2**28
_PIECE_BYTES = 2**20
_INT64 = range(-(2**63), 2**64)  # signed or not: seeds go up to 2**64 - 1

# Strings and comments first, so that a bracket inside one is not counted; never going back, so that
# time is linear.
_JSON_PARTS = re.compile(r'"(?:\\.|[^"\\])*+"?|[\[\]{}]', re.DOTALL)
_TOML_PARTS = re.compile(
    r'"""(?:\\.|(?!""")[^\\])*+(?:""")?|\'\'\'(?:(?!\'\'\').)*+(?:\'\'\')?'
    r'|"(?:\\.|[^"\\\n])*+"?|\'[^\'\n]*+\'?|\#[^\n]*+|[\[\]{}.,=\n]',
    re.DOTALL,
)


def is_folder(path: Path) -> bool:
    """Tells whether there is such a folder; False also for a name that no file system takes."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_text(path: Path, *, most_bytes: int = MOST_JSON_BYTES) -> str:
    """Returns all of a UTF-8 file. Raises OSError, or ValueError for one that is longer or of other
    bytes.
    """
    # One byte more than is allowed tells, and a file without an end cannot fill the memory.
    # In pieces, since the memory for all that is asked for would be taken first.
    content = bytearray()
    with path.open("rb") as stream:
        while len(content) <= most_bytes and (
            piece := stream.read(min(_PIECE_BYTES, most_bytes + 1 - len(content)))
        ):
            content += piece
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return content.decode("utf-8")


def read_json(path: Path, *, infinite: bool = False) -> Any:
    """Reads a JSON file. Raises OSError, or ValueError for what `parse_json` refuses."""
    return parse_json(read_text(path), infinite=infinite)


def parse_json(text: str, *, infinite: bool = False) -> Any:
    """Parses JSON. Raises ValueError for what is not JSON, is nested too deeply, or means something
    else to another reader.

    That is: a key that stands twice in an object, integers beyond 64 bits, halves of characters,
    and, unless they are `infinite`, numbers that are not finite.
    """
    _refuse_nesting(text, _JSON_PARTS)
    finite: dict[str, Any] = (
        {} if infinite else {"parse_constant": _no_number, "parse_float": _float}
    )
    value = json.loads(text, object_pairs_hook=_object, parse_int=_int, **finite)
    if "\\u" in text:
        for part, _ in _parts_of(value):
            if isinstance(part, str) and not part.isascii():
                part.encode(
                    "utf-8"
                )  # half a character has no bytes: UnicodeEncodeError, a ValueError
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file. Raises OSError, or ValueError for what `parse_toml` refuses."""
    return parse_toml(read_text(path, most_bytes=MOST_TOML_BYTES))


def parse_toml(text: str) -> dict[str, Any]:
    """Parses TOML. Raises ValueError for what is not TOML, is nested too deeply, or holds an
    integer beyond 64 bits.
    """
    _refuse_nesting(text, _TOML_PARTS)
    table = tomllib.loads(text)
    for part, depth in _parts_of(table):
        if depth > MOST_DEPTH:
            raise ValueError(_TOO_DEEP)
        if isinstance(part, int) and part not in _INT64:
            raise ValueError(f"{shown(part)} is an integer beyond 64 bits")
    return table


def shown(value: object, most: int = 80) -> str:
    """Returns a value as Python writes it, cut: what came may be megabytes long, and a message is a
    line.
    """
    text = str(value) if isinstance(value, int) and value in _INT64 else _written(value, most)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _written(value: object, most: int) -> str:
    # Digits of huge integers are refused by Python itself, and the repr of a huge text is made
    # before it is cut.
    if isinstance(value, int):
        return f"an integer of {value.bit_length():,} bits"
    return repr(value[: most + 1]) if isinstance(value, str | bytes) else repr(value)


_TOO_DEEP = f"lists, tables or keys are nested more than {MOST_DEPTH} deep"


def _refuse_nesting(text: str, parts: re.Pattern[str]) -> None:
    depth = dots = 0
    for found in parts.finditer(text):
        part = found[0]
        if part in ("[", "{"):
            depth += 1
        elif part in ("]", "}"):
            depth = max(0, depth - 1)
        dots = dots + 1 if part == "." else 0 if part in ("[", "{", ",", "=", "\n") else dots
        if max(depth, dots) > MOST_DEPTH:
            raise ValueError(_TOO_DEEP)


def _parts_of(value: Any) -> Iterator[tuple[Any, int]]:
    """A value and all that it holds, keys included, with how deep each stands; without
    recursion.
    """
    waiting = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        yield part, depth
        if isinstance(part, dict):
            waiting += [(inner, depth + 1) for item in part.items() for inner in item]
        elif isinstance(part, list):
            waiting += [(inner, depth + 1) for inner in part]


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {shown(key)} stands twice in one object")
        table[key] = value
    return table


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{shown(text)} is beyond the numbers of 64 bits")
    return value


def _int(text: str) -> int:
    if len(text) > 20 or int(text) not in _INT64:
        raise ValueError(f"{shown(text)} is an integer beyond 64 bits")
    return int(text)
