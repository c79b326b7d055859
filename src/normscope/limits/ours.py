"""The files that are ours where the user's files may lie: the one rule by which anything is written
over or removed.

A folder is replaced or removed entry by entry, as a manifest of ours lists it; a file is written
over where it is one of ours of the same kind (`kinds.py`). Whatever else lies there is the user's:
it is named, and nothing is changed. No link is followed or replaced. A text file of ours holds a
SHA-256 of itself: one in which a bit has flipped, or that was edited, is refused.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from .kinds import CHECKPOINT, CONFIGURATION, FileKind, is_sealed, sealed_json
from .reading import parse_json, read_text, shown

MARK = ".made-by-normscope"
"""The file in a folder that is being made; all in it goes where that is not finished."""
_STAYS = "and stays: move it away, or choose another place"


def nothing_of_ours(folder: Path) -> Mapping[str, str]:
    """Returns what `refuse_foreign` takes where a folder has no manifest: only an empty one is
    filled.
    """
    return {}


def refuse_foreign(folder: Path, listed: Callable[[Path], Mapping[str, str]]) -> None:
    """Raise UserError where anything stands at `folder` that is not ours, naming the first entry.

    listed: gives for the folder the names of the files that are ours, the manifest's last, with the
    SHA-256 of each, or an empty text where any bytes will do.
    """
    if folder.is_symlink():
        raise UserError(f"{folder} is a link, {_STAYS}; it leads to {os.path.realpath(folder)}")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file, {_STAYS}")
    try:
        entries = sorted(
            (entry for entry in os.scandir(folder) if entry.name != MARK),
            key=lambda entry: entry.name,
        )
    except PermissionError as error:
        raise UserError(
            f"{folder}: no permission to look into this folder; choose another"
        ) from error
    ours = listed(folder) if entries else {}
    for entry in entries:
        if entry.name not in ours or not entry.is_file(follow_symlinks=False):
            raise UserError(f"{entry.path} was not written by NormScope, {_STAYS}")
        if ours[entry.name] and _sha256(entry.path) != ours[entry.name]:
            raise UserError(
                f"{entry.path} is not as NormScope wrote it, edited or damaged; remove "
                f"{entry.path} and run the same command again, or choose another place"
            )


def refuse_inside(folder: Path, sources: Iterable[Path]) -> None:
    """Raise UserError where a file to read lies in the folder that is to be replaced."""
    whole = Path(os.path.realpath(folder))
    for source in sources:
        if Path(os.path.realpath(source)).is_relative_to(whole):
            raise UserError(
                f"{source} lies in {folder}, which is written again; choose a folder for the "
                "result without it"
            )


def refuse_unusual(file: Path) -> None:
    """Raise UserError where a link, a folder or a device stands at the place of a file."""
    if file.is_symlink():
        raise UserError(f"{file} is a link, {_STAYS}; it leads to {os.path.realpath(file)}")
    if file.exists() and not file.is_file():
        raise UserError(f"{file} is {'a folder' if file.is_dir() else 'no regular file'}, {_STAYS}")


def content_of(file: Path) -> bytes | None:
    """Returns what a file holds in whose place another is to be written; None where there is none.

    Raises UserError where a link, a folder or a device stands there, or it may not be read.
    """
    refuse_unusual(file)
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise UserError(
            f"{file}: no permission to read it, so that it stays; choose another place"
        ) from error


def refuse_other(file: Path, kind: FileKind, content: bytes | None = None) -> None:
    """Raise UserError where a file stands there that is none of ours of this kind, unless it is
    empty or equal to `content`.
    """
    there = content_of(file)
    if not there or there == content or kind.bears(there):
        return
    as_what = f"was not written by NormScope as {kind.words}" if kind.words else "holds other text"
    raise UserError(f"{file} {as_what}, {_STAYS}")


def refuse_part(file: Path, kind: FileKind) -> None:
    """Raise UserError where a file stands there that a run, a corpus, a checkpoint or a comparison
    is made of, be it empty; of one of this kind it is none.
    """
    there = content_of(file)
    if there is None or kind.bears(there):
        return
    for folder in file.absolute().parents[:2]:  # a run has its files in folders of its own too
        if _is_of_ours(folder):
            raise UserError(
                f"{file} is a file of {folder}, which NormScope made, and stays; choose another "
                "place"
            )


def _is_of_ours(folder: Path) -> bool:
    """Tells whether a folder is a run, a corpus, a checkpoint or a comparison."""
    for name in ("corpus.json", "comparison.json"):
        if str(sealed_table(folder / name).get("format")).startswith("normscope-"):
            return True
    for name, kind in (("config.toml", CONFIGURATION), ("MANIFEST.sha256", CHECKPOINT)):
        with suppress(OSError):
            if kind.bears((folder / name).read_bytes()):
                return True
    return False


def _sha256(file: str) -> str:
    with open(file, "rb") as stream:  # noqa: PTH123
        return hashlib.file_digest(stream, "sha256").hexdigest()


_KEY = "sha256_of_this_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedJson:
    """A kind of JSON file: how it names itself, what it holds, and what is to be done where one is
    damaged.
    """

    format_name: str
    version: int
    keys: frozenset[str]
    """The keys of every such file."""
    optional: frozenset[str] | None = frozenset()
    """The keys that it may have beside these; None for any."""
    made_by: str = ""
    """The command that makes one, for the message where a file is of another kind."""
    again: str
    """The advice where one is damaged, in words that may follow a semicolon."""

    @property
    def kind(self) -> FileKind:
        """The kind by which such a file is known where another is to take its place."""
        return sealed_json(self.format_name)

    def text(self, state: Mapping[str, Any]) -> str:
        """Returns a file's content."""
        return _sealed({"format": self.format_name, "version": self.version, **state})

    def read(self, path: Path) -> dict[str, Any]:
        """Reads the table that `text` was given. Raises UserError for any other file."""
        try:
            text = read_text(path)
            table = parse_json(text)
        except FileNotFoundError as error:
            raise UserError(f"{path}: no such file; {self.again}") from error
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}); fix that and try again"
            ) from error
        except ValueError as error:
            raise UserError(f"{path} is damaged (no JSON: {error}); {self.again}") from error
        found = table.get("format") if isinstance(table, dict) else None
        if not _is_sealed(text, table):
            if found != self.format_name:
                raise UserError(
                    f"{path} is damaged or no {self.format_name} file; {self._of_another()}"
                )
            raise UserError(
                f"{path} is damaged (its SHA-256 is not the one noted in it); {self.again}"
            )
        if found != self.format_name:
            raise UserError(
                f"{path} is of format {shown(found)}, not a {self.format_name} file; "
                f"{self._of_another()}"
            )
        if (version := table.get("version")) != self.version:
            raise UserError(
                f"{path} has version {shown(version)}, and this NormScope reads {self.version}; "
                f"{self.again}"
            )
        state = {
            key: value for key, value in table.items() if key not in ("format", "version", _KEY)
        }
        unknown = (
            state.keys() - self.keys - (state.keys() if self.optional is None else self.optional)
        )
        faults = [f"lacks {key!r}" for key in sorted(self.keys - state.keys())]
        faults += [f"has the unknown {key!r}" for key in sorted(unknown)]
        if faults:
            raise UserError(
                f"{path} was written by another version: it {', '.join(faults)}; {self.again}"
            )
        return state

    def _of_another(self) -> str:
        return f"{self.made_by} makes one" if self.made_by else self.again


def sealed_table(path: Path) -> dict[str, Any]:
    """Returns the table of a JSON file of ours, whatever its kind; an empty one for any other
    file.
    """
    try:
        text = read_text(path)
        table = parse_json(text)
    except (OSError, ValueError):
        return {}
    return table if _is_sealed(text, table) else {}


def refuse_broken_seal(file: Path, *, again: str) -> None:
    """Raise UserError where a file is not as `sealed_lines` made it. again: as of `SealedJson`."""
    if not is_sealed(file.read_bytes()):
        raise UserError(
            f"{file} is damaged or was edited: its last line is not the SHA-256 of the lines above "
            f"it; {again}"
        )


def _is_sealed(text: str, table: Any) -> bool:
    """Tells whether the seal is that of the text, and not of the values, so that a changed blank is
    noticed too.
    """
    return isinstance(table, dict) and text == _sealed(
        {key: table[key] for key in table if key != _KEY}
    )


def _sealed(table: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(table, indent=1).encode()).hexdigest()
    return json.dumps(table | {_KEY: digest}, indent=1) + "\n"
