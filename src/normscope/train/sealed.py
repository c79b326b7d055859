"""Text files that carry a SHA-256 of themselves: one in which a bit has flipped, or which was edited, is refused."""

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..errors import UserError

_KEY = "sha256"
_LAST_LINE = "# SHA-256 of the lines above: "


def sealed_json(table: dict[str, Any]) -> str:
    """A table as JSON, with the SHA-256 of that JSON as one of its keys."""
    return _json(table | {_KEY: hashlib.sha256(_json(table).encode()).hexdigest()})


def read_sealed_json(file: Path, *, keys: Collection[str], optional: Collection[str], advice: str) -> dict[str, Any]:
    """The table that `sealed_json` wrote; it must have `keys`, may have `optional`, and nothing else.

    advice: what the user can do, as a sentence. Raises UserError.
    """
    content = file.read_bytes()
    try:
        table = json.loads(content)
        del table[_KEY]
        whole = sealed_json(table).encode() == content
    except (ValueError, RecursionError, TypeError, KeyError):
        whole = False
    if not whole:
        raise UserError(f"{file} is damaged: it does not have the SHA-256 that it names. {advice}")
    differing = set(keys) - table.keys() | table.keys() - set(keys) - set(optional)
    if differing:
        raise UserError(f"{file} was written by another version: {', '.join(sorted(differing))}. {advice}")
    return table  # type: ignore[no-any-return]


def sealed_lines(text: str) -> str:
    """Lines of text, and a last one with their SHA-256, which is a comment in TOML."""
    return f"{text}{_LAST_LINE}{hashlib.sha256(text.encode()).hexdigest()}\n"


def refuse_broken_seal(file: Path, *, advice: str) -> None:
    """Raise UserError where a file is not as `sealed_lines` made it. advice: as in `read_sealed_json`."""
    content = file.read_bytes()
    above, mark, _ = content.rpartition(_LAST_LINE.encode())
    try:
        whole = bool(mark) and sealed_lines(above.decode()).encode() == content
    except UnicodeDecodeError:
        whole = False
    if not whole:
        raise UserError(
            f"{file} is damaged or was edited: its last line is not the SHA-256 of the lines above it. {advice}"
        )


def folder_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of a folder's files, with those below it; of nothing where it is absent."""
    found = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        found.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
    return found.hexdigest()


def _json(table: dict[str, Any]) -> str:
    return json.dumps(table, indent=1, sort_keys=True) + "\n"
