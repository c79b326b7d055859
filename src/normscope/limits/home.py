"""Paths that begin with `~`, as the shell takes them."""

import os
from pathlib import Path


def from_home(path: str | Path) -> Path:
    """Returns a path with the home folder in place of a leading `~`, or `~name`.

    Where there is no user of that name it stays as it is, as in a shell: a file may be called so.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111 (pathlib's raises for an unknown user)
