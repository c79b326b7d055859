"""Names that a manifest lists: each is the name of a file or folder beside it, and nothing else.

A manifest comes with a folder that anybody may have made, and what it lists is opened, or removed
with the folder. Joined to the folder's path, `../notes`, an absolute path or a link would be a file
of the user's somewhere else. Every reader of a manifest takes its names through `inside`.
"""

import os
from pathlib import Path

from ..errors import UserError
from .reading import shown

_NOT_IN_A_NAME = ("/", "\\", "\0")
_MOST_BYTES = 255
"""The largest size of a file's name, on every file system in use."""


def is_plain(name: object) -> bool:
    """Returns whether this is the name of a file in some folder: no path, and neither `.` nor `..`.

    >>> [is_plain(name) for name in ("train.tokens", "../train.tokens", "..", "")]
    [True, False, False, False]
    """
    if not isinstance(name, str) or name in ("", ".", ".."):
        return False
    if any(sign in name for sign in _NOT_IN_A_NAME):
        return False
    return len(name.encode("utf-8", "replace")) <= _MOST_BYTES


def plain(name: object, manifest: Path) -> str:
    """Returns a name that a manifest lists. Raises UserError where it is the name of no file."""
    if isinstance(name, str) and is_plain(name):
        return name
    raise UserError(
        f"{manifest} lists {shown(name)}, and may list plain names of files in its own folder "
        "alone; nothing was read or removed: do not use what came with it, or have it made again"
    )


def inside(folder: Path, name: object, manifest: Path) -> Path:
    """Returns the path of what a manifest names in a folder, whether it is there or not.

    manifest: the file that names it, for the message. Raises UserError for a name that is a path,
    and for a link that leads out of the folder.
    """
    path = folder / plain(name, manifest)
    refuse_leading_out(path)
    return path


def refuse_leading_out(path: Path) -> None:
    """Refuses a link at `path` that leads out of the folder it lies in. Raises UserError."""
    if not os.path.islink(path):  # noqa: PTH114 (pathlib's raises for a name that is too long)
        return
    leads_to = Path(os.path.realpath(path))
    if not leads_to.is_relative_to(os.path.realpath(path.parent)):
        raise UserError(
            f"{path} is a link that leads out of its folder, to {leads_to}, and is neither "
            "followed nor replaced; put the file or folder itself in its place"
        )
