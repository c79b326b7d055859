"""JSON files of ours that say what they are and hold the SHA-256 of all else in them: no change goes unnoticed."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..limits.reading import parse_json, read_text

_OWN = "sha256_of_this_file"


def write_state(path: Path, *, format_name: str, version: int, state: Mapping[str, Any]) -> None:
    """Write `state` as `read_state` wants it."""
    table = {"format": format_name, "version": version, **state}
    path.write_text(_guarded(table), encoding="utf-8", newline="\n")


def read_state(
    path: Path, *, format_name: str, version: int, keys: set[str], made_by: str = "", again: str = "prepare it again"
) -> dict[str, Any]:
    """What `write_state` wrote, with the keys named and no others. Raises UserError for anything else.

    made_by: the command that makes such a file, for the message where it is of another format. again: what to do where
    it is damaged.
    """
    try:
        text = read_text(path)
        table = parse_json(text)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file, so {path.parent} is not a complete {format_name} folder") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path}: damaged, no JSON ({error}); {again}") from error
    if not isinstance(table, dict) or table.get("format") != format_name:
        raise UserError(f"{path}: not a {format_name} file" + (f"; {made_by} makes one" if made_by else ""))
    if table.get("version") != version:
        raise UserError(f"{path}: version {table.get('version')}, this NormScope reads {version}; {again}")
    wanted = {"format", "version", _OWN} | keys
    if differing := sorted(table.keys() ^ wanted):
        what = "lacks the key" if differing[0] in wanted else "has the unknown key"
        raise UserError(f"{path}: damaged ({what} {differing[0]!r}); {again}")
    del table[_OWN]
    # Of the text and not of the values, so that a changed blank is noticed too.
    if text != _guarded(table):
        raise UserError(f"{path}: damaged (its SHA-256 is not the one noted in it); {again}")
    return table


def _guarded(table: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(table, indent=1).encode()).hexdigest()
    return json.dumps(table | {_OWN: digest}, indent=1) + "\n"
