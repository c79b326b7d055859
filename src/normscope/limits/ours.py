"""What is ours where the user's files may lie: the one rule by which anything is written over or removed.

A folder is replaced or removed entry by entry, as a manifest of ours lists it; a file is written over where it bears a
mark of ours. Whatever else lies there is the user's: it is named, and nothing is changed. No link is followed or
replaced.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..errors import UserError

MARK = ".made-by-normscope"
"""The file in a folder that is being made; all in it goes where that is not finished."""
PAGE_MARK = '<meta name="generator" content="NormScope">'
_MARKS = (
    re.escape(PAGE_MARK),
    r'\A<svg role="img" aria-labelledby="title desc" ',  # of `report/svg.py`
    r'\A<svg xmlns="http://www\.w3\.org/2000/svg" class="(?:curves|wiring)" ',
    r'"normscope": "|"sha256_of_this_file": "',  # `provenance`, and the seal of JSON and of TOML
    r"^# SHA-256 of the lines above: ",
    r'\A\{"pid": |\A\0*\Z',  # of `processes/locks.py`, and what a power cut leaves of it
    r"^(?:<!-- Written|Made) by `normscope ",
)
_OURS = re.compile("|".join(_MARKS).encode(), re.MULTILINE)
_STAYS = "and stays: move it away, or choose another place"


def nothing_of_ours(folder: Path) -> Mapping[str, str]:
    """What `refuse_foreign` takes where a folder has no manifest: only an empty one is filled."""
    return {}


def refuse_foreign(folder: Path, listed: Callable[[Path], Mapping[str, str]]) -> None:
    """Raise UserError where anything stands at `folder` that is not ours, naming the first entry.

    listed: gives for the folder the names of the files that are ours, the manifest's last, with the SHA-256 of each, or
    an empty text where any bytes will do.
    """
    if folder.is_symlink():
        raise UserError(f"{folder} is a link, {_STAYS}; it leads to {os.path.realpath(folder)}")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file, {_STAYS}")
    try:
        entries = sorted((entry for entry in os.scandir(folder) if entry.name != MARK), key=lambda entry: entry.name)
    except PermissionError as error:
        raise UserError(f"{folder}: no permission to look into this folder; choose another") from error
    ours = listed(folder) if entries else {}
    for entry in entries:
        if entry.name not in ours or not entry.is_file(follow_symlinks=False):
            raise UserError(f"{entry.path} was not written by NormScope, {_STAYS}")
        if ours[entry.name] and _sha256(entry.path) != ours[entry.name]:
            raise UserError(
                f"{entry.path} is not as NormScope wrote it, edited or damaged; remove {entry.path} and run the same "
                "command again, or choose another place"
            )


def refuse_inside(folder: Path, sources: Iterable[Path]) -> None:
    """Raise UserError where a file to read lies in the folder that is to be replaced."""
    whole = Path(os.path.realpath(folder))
    for source in sources:
        if Path(os.path.realpath(source)).is_relative_to(whole):
            raise UserError(
                f"{source} lies in {folder}, which is written anew; choose a folder for the result without it"
            )


def refuse_unusual(file: Path) -> None:
    """Raise UserError where a link, a folder or a device stands at the place of a file."""
    if file.is_symlink():
        raise UserError(f"{file} is a link, {_STAYS}; it leads to {os.path.realpath(file)}")
    if file.exists() and not file.is_file():
        raise UserError(f"{file} is {'a folder' if file.is_dir() else 'no regular file'}, {_STAYS}")


def refuse_other(file: Path, content: bytes | None = None) -> None:
    """Raise UserError where a file stands there that bears no mark of ours and is not equal to `content`."""
    refuse_unusual(file)
    try:
        there = file.read_bytes()
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise UserError(f"{file}: no permission to read it, so that it stays; choose another place") from error
    if there and there != content and not _OURS.search(there):
        raise UserError(f"{file} was not written by NormScope, {_STAYS}")


def _sha256(file: str) -> str:
    with open(file, "rb") as stream:  # noqa: PTH123
        return hashlib.file_digest(stream, "sha256").hexdigest()
