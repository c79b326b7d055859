"""The placements by their names: where a formula is made known, and found however its name is written."""

import difflib
import re
import sys
from typing import ClassVar

from .base import Placement, StackShape

_REGISTRY: dict[str, type[Placement]] = {}
_STAND_INS: dict[str, type["StandIn"]] = {}


class StandIn(Placement):
    """In the place of one whose file was not run: runs that have it can be read, and no model of it be built."""

    citation = ""
    year = 0
    file: ClassVar[str]
    """Which is said to register it."""

    def __init__(self, stack: StackShape) -> None:
        raise ValueError(
            f"placement {self.name!r} is one of {self.file}, which was not run; --import FILE.py runs a file, and "
            "importing it in Python does"
        )


def stand_in(name: str, file: str) -> None:
    """Make `name`, where it is no placement that is known, that of one in a file which is not run."""
    if name not in _REGISTRY:
        _STAND_INS[name] = type("StandIn", (StandIn,), {"name": name, "title": name, "file": file})


def register(placement: type[Placement]) -> type[Placement]:
    """Class decorator that makes a placement known by its name in every command.

    Raises ValueError on a name already taken.
    """
    for attribute in ("name", "title", "citation", "year"):
        if not hasattr(placement, attribute):
            raise ValueError(f"placement class {placement.__name__} must set `{attribute}`")
    known = _REGISTRY.get(placement.name)
    if known is not None and _source(known) != _source(placement):
        raise ValueError(f"placement name {placement.name!r} is taken by {known.__module__}.{known.__qualname__}")
    _REGISTRY[placement.name] = placement
    return placement


def _source(placement: type[Placement]) -> tuple[str, str]:
    """The file of a class, and its name there. A user's file may be loaded twice in one process, by path and by import,
    under two names of modules: the same source is not a clash."""
    module = sys.modules.get(placement.__module__)
    return getattr(module, "__file__", None) or placement.__module__, placement.__qualname__


def registered() -> dict[str, type[Placement]]:
    """All placements by name, in alphabetical order."""
    return dict(sorted(_REGISTRY.items()))


def named(name: str) -> type[Placement]:
    """The placement of that name, however it is written: `Pre-LN`, `pre_ln` and `preln` are `pre-ln`.

    Raises ValueError naming the nearest known one, if any is near.
    """
    if name in _REGISTRY:
        return _REGISTRY[name]
    alike = [known for known in _REGISTRY if _letters(known) == _letters(name)]
    if len(alike) == 1:
        return _REGISTRY[alike[0]]
    if name in _STAND_INS:
        return _STAND_INS[name]
    written = name.lower().replace("_", "-").replace(" ", "-")
    near = difflib.get_close_matches(written, registered(), n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(
        f"unknown placement {name!r}; {meant}`normscope placements` lists all, and --import "
        "FILE.py, or importing the file in Python, registers your own"
    )


def _letters(name: str) -> str:
    """A name without what people write differently: case, spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", name.lower())
