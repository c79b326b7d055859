"""Files changed at random: bytes, and values inside JSON, TOML and headers of tensors. One seed
gives one change.
"""

import gzip
import json
import lzma
import random
import struct
import tomllib
from collections.abc import Callable, MutableMapping, MutableSequence
from typing import Any

import tomli_w

_ODD_BYTES = (
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xe2\x80\xa8",
    b"\r",
    b"\n" * 300,
    b'"',
    b"{" * 200,
    b"[" * 5000,
)
_ODD_BYTES += (
    b"9" * 5000,
    b"=",
    b"\t",
    b"#",
    b"\x1b[2J",
    b" " * 70_000,
    "ﷺ".encode() * 50,
    b"a." * 3000,
)


def _nested(depth: int, table: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if table else [value]
    return value


_ODD_VALUES: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: True,
    lambda: False,
    *(
        lambda number=number: number
        for number in (0, -1, 1, 2, 3, 7, 255, 2**16, 10**6, 10**9, 2**31, 2**32, 2**40)
    ),
    *(
        lambda number=number: number
        for number in (2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), -(10**9))
    ),
    *(
        lambda number=number: number
        for number in (0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"))
    ),
    *(
        lambda text=text: text
        for text in ("", "0", "true", "toy", "none", "\0", "é", "../..", "/", "%s{}", "a b")
    ),
    lambda: "x" * 100_000,
    list,
    dict,
    lambda: [[]],
    lambda: {"": {}},
    lambda: [1, 2, 3],
    lambda: ["a"],
    lambda: {"a": 1},
    lambda: _nested(70, False),
    lambda: _nested(70, True),
    lambda: _nested(400, True),
)


def of_bytes(data: bytes, draw: random.Random) -> bytes:
    """One to three of: a flipped bit, a cut, a piece left out, doubled or moved, bytes put in."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        place, other = sorted(draw.randint(0, len(changed)) for _ in range(2))
        kind = draw.randrange(6)
        if kind <= 1 and place < len(changed):
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 2:
            del changed[place : draw.choice((other, place + 1, len(changed)))]
        elif kind == 3:
            changed[place:place] = changed[place : min(other, place + 4096)]
        elif kind == 4:
            changed[place:place] = draw.choice(_ODD_BYTES)
        else:
            changed[place : place + 1] = bytes([draw.randrange(256)])
    return bytes(changed)


def of_json(data: bytes, draw: random.Random) -> bytes:
    """One to three values or keys of JSON; bytes, where it is none or one time in four."""
    if draw.randrange(4) == 0:
        return of_bytes(data, draw)
    try:
        value = json.loads(data)
    except ValueError:
        return of_bytes(data, draw)
    value = of_value(value, draw)
    text = json.dumps(value, indent=draw.choice((None, 1)))
    if draw.randrange(8) == 0:
        text = _with_key_twice(text, draw)
    if draw.randrange(12) == 0:
        text = text.replace(
            draw.choice(("1", "2", "0")), draw.choice(("1e999", "9" * 5000, "1.5", "\\ud800")), 1
        )
    if draw.randrange(20) == 0:
        depth = draw.choice((100, 3000, 200_000))
        text = text.replace(": ", ": " + "[" * depth + "]" * depth + ', "more": ', 1)
    return text.encode("utf-8", "replace")


def of_json_lines(data: bytes, draw: random.Random) -> bytes:
    """One line as `of_json`, or bytes of all."""
    lines = data.splitlines()
    at = draw.randrange(len(lines))
    lines[at] = of_json(lines[at], draw).replace(b"\n", b" ")
    return of_bytes(data, draw) if draw.randrange(4) == 0 else b"\n".join(lines)


def of_toml(data: bytes, draw: random.Random) -> bytes:
    """As `of_json`."""
    if draw.randrange(3) == 0:
        return of_bytes(data, draw)
    try:
        return tomli_w.dumps(of_value(tomllib.loads(data.decode()), draw)).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return of_bytes(data, draw)


def of_tensors(data: bytes, draw: random.Random) -> bytes:
    """The header's values, the header's length, or bytes."""
    length = struct.unpack("<Q", data[:8])[0]
    header, rest = data[8 : 8 + length], data[8 + length :]
    kind = draw.randrange(4)
    if kind == 0:
        return of_bytes(data, draw)
    if kind == 1:
        lie = draw.choice(
            (0, 1, length - 1, length + 8, len(data), 2**31, 2**63, 2**64 - 1, 99_999_999)
        )
        return struct.pack("<Q", lie) + data[8:]
    header = of_json(header, draw)
    return (
        struct.pack("<Q", len(header))
        + header
        + (rest if kind == 2 else rest[: draw.randint(0, len(rest))])
    )


def of_gzip(data: bytes, draw: random.Random) -> bytes:
    """The bytes packed or unpacked, or a bomb."""
    return _of_packed(data, draw, gzip.compress, gzip.decompress)


def of_xz(data: bytes, draw: random.Random) -> bytes:
    """As `of_gzip`."""
    return _of_packed(data, draw, lzma.compress, lzma.decompress)


def _of_packed(
    data: bytes,
    draw: random.Random,
    pack: Callable[[bytes], bytes],
    unpack: Callable[[bytes], bytes],
) -> bytes:
    kind = draw.randrange(8)
    if kind == 0:
        # A million short lines are no bomb but a text: splitting them into sentences takes its ten
        # seconds.
        return pack(
            draw.choice(
                (b"\0" * 4_000_000, b"a" * 9_000_000, b"a b\n" * 250_000, b"\n" * 2_000_000)
            )
        )
    if kind <= 3:
        return pack(of_bytes(unpack(data), draw))
    if kind == 4:
        return data + pack(b"more\n") * 3 + draw.choice((b"", b"\0" * 9, b"rest"))
    return of_bytes(data, draw)


def of_value(value: Any, draw: random.Random) -> Any:
    """A value with one to three of its parts changed, left out, renamed, moved or made odd."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return draw.choice(_ODD_VALUES)()
        holder, key = draw.choice(places)
        kind = draw.randrange(8)
        if kind <= 4:
            holder[key] = _odd(holder[key], draw)
        elif kind == 5:
            del holder[key]
        elif kind == 6 and isinstance(holder, MutableMapping):
            name = draw.choice((f"{key}s", "", str(key).upper(), "a" * 3000, f"{key}\0"))
            holder[name] = holder.pop(key)
        else:
            other, other_key = draw.choice(places)
            if _still_there(other, other_key) and not isinstance(other[other_key], list | dict):
                holder[key] = other[other_key]
    return value


def _odd(value: Any, draw: random.Random) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and draw.randrange(3) == 0:
        return draw.choice(
            (
                value + 1,
                value - 1,
                value * 2,
                -value,
                float(value),
                str(value),
                [value],
                value * 10**5,
            )
        )
    return draw.choice(_ODD_VALUES)()


def _places(value: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """Every (list or table, index or key) inside a value; long lists by their first parts."""
    found: list[tuple[Any, Any]] = []
    keys: Any = ()
    if isinstance(value, MutableMapping):
        keys = list(value)[:400]
    elif isinstance(value, MutableSequence):
        keys = range(min(len(value), 8))
    for key in keys:
        found.append((value, key))
        if depth < 12:
            found += _places(value[key], depth + 1)
    return found


def _still_there(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, MutableMapping) else key < len(holder)


def _with_key_twice(text: str, draw: random.Random) -> str:
    keys = [part for part in text.split('"')[1::2] if part]
    key = draw.choice(keys) if keys else "a"
    return text.replace("{", '{"' + key + '": ' + draw.choice(("1", "null", '"x"')) + ", ", 1)
