"""Text files of ours that hold a SHA-256 of themselves: one in which a bit has flipped, or that was edited, is refused.

JSON holds it as its last key, beside the name and the version of what it is; TOML in a comment, its last line.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from .reading import parse_json, read_text, shown

_KEY = "sha256_of_this_file"
_LAST_LINE = "# SHA-256 of the lines above: "


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedJson:
    """A kind of JSON file: how it names itself, what it holds, and what is to be done where one is damaged."""

    format_name: str
    version: int
    keys: frozenset[str]
    """What each holds."""
    optional: frozenset[str] | None = frozenset()
    """What it may hold beside that; None for anything."""
    made_by: str = ""
    """The command that makes one, for the message where a file is of another kind."""
    again: str
    """What the user can do where one is damaged, in words that may follow a semicolon."""

    def text(self, state: Mapping[str, Any]) -> str:
        """A file's content."""
        return _sealed({"format": self.format_name, "version": self.version, **state})

    def read(self, path: Path) -> dict[str, Any]:
        """What `text` was given. Raises UserError for any other file."""
        try:
            text = read_text(path)
            table = parse_json(text)
        except FileNotFoundError as error:
            raise UserError(f"{path}: no such file; {self.again}") from error
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}); mend that and try again") from error
        except ValueError as error:
            raise UserError(f"{path} is damaged (no JSON: {error}); {self.again}") from error
        found, version = (table.get("format"), table.get("version")) if isinstance(table, dict) else (None, None)
        # Of the text and not of the values, so that a changed blank is noticed too.
        if not isinstance(table, dict) or text != _sealed({key: table[key] for key in table if key != _KEY}):
            if found != self.format_name:
                raise UserError(f"{path} is damaged or no {self.format_name} file; {self._of_another()}")
            raise UserError(f"{path} is damaged (its SHA-256 is not the one noted in it); {self.again}")
        if found != self.format_name:
            raise UserError(f"{path} is of format {shown(found)}, not a {self.format_name} file; {self._of_another()}")
        if version != self.version:
            raise UserError(
                f"{path} has version {shown(version)}, and this NormScope reads {self.version}; {self.again}"
            )
        state = {key: value for key, value in table.items() if key not in ("format", "version", _KEY)}
        self._refuse_other_keys(path, state)
        return state

    def _of_another(self) -> str:
        return f"{self.made_by} makes one" if self.made_by else self.again

    def _refuse_other_keys(self, path: Path, state: Mapping[str, Any]) -> None:
        lacks, unknown = sorted(self.keys - state.keys()), sorted(state.keys() - self.keys)
        unknown = [] if self.optional is None else [key for key in unknown if key not in self.optional]
        if lacks or unknown:
            faults = [f"lacks {key!r}" for key in lacks] + [f"has the unknown {key!r}" for key in unknown]
            raise UserError(f"{path} was written by another version: it {', '.join(faults)}; {self.again}")


def sealed_table(path: Path) -> dict[str, Any]:
    """What a JSON file of ours holds, whatever its kind; nothing for any other file."""
    try:
        text = read_text(path)
        table = parse_json(text)
    except (OSError, ValueError):
        return {}
    ours = isinstance(table, dict) and text == _sealed({key: table[key] for key in table if key != _KEY})
    return table if ours else {}


def sealed_lines(text: str) -> str:
    """Lines of text, and a last one with their SHA-256, which is a comment in TOML."""
    return f"{text}{_LAST_LINE}{hashlib.sha256(text.encode()).hexdigest()}\n"


def refuse_broken_seal(file: Path, *, again: str) -> None:
    """Raise UserError where a file is not as `sealed_lines` made it. again: as of `SealedJson`."""
    content = file.read_bytes()
    above, mark, _ = content.rpartition(_LAST_LINE.encode())
    try:
        whole = bool(mark) and sealed_lines(above.decode()).encode() == content
    except UnicodeDecodeError:
        whole = False
    if not whole:
        raise UserError(
            f"{file} is damaged or was edited: its last line is not the SHA-256 of the lines above it; {again}"
        )


def _sealed(table: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(table, indent=1).encode()).hexdigest()
    return json.dumps(table | {_KEY: digest}, indent=1) + "\n"
