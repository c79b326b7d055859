"""The placements by their names: where a formula is made known, and found however its name is
written.
"""

import difflib
import re
import sys
from typing import ClassVar

from .base import Placement, StackShape
from .query_key import SUFFIX, QueryKeyNorm, with_query_key_norm
from .reading import formula_fault

_REGISTRY: dict[str, type[Placement]] = {}
_READ: set[type[Placement]] = set()
"""The users' own placements whose formula has been read."""


class StandIn(Placement):
    """A stand-in for a placement whose file was not run: runs that have it can be read, but no
    model of it can be built.
    """

    citation = ""
    year = 0
    file: ClassVar[str]
    """The file that is said to register it."""
    shown: ClassVar[str]
    """The text in the place of its formula."""

    def __init__(self, stack: StackShape) -> None:
        raise ValueError(
            f"placement {self.name!r} is one of {self.file}, which was not run; --import FILE.py "
            "runs a file, and importing it in Python does"
        )


class AsBuilt(StandIn):
    """The placement of a user's model as its own code builds it, whatever that is."""

    name = "own"
    title = "Own"
    shown = "as the model's own code has it"

    def __init__(self, stack: StackShape) -> None:
        raise ValueError(
            f"placement {self.name!r} is that of a model of your own, which model.factory names; "
            "our models have one of those that `normscope placements` lists"
        )


_STAND_INS: dict[str, type[StandIn]] = {AsBuilt.name: AsBuilt}


def stand_in(name: str, file: str) -> None:
    """Make `name`, where it is no placement that is known, that of one in a file which is not
    run.
    """
    name, _ = _parted(name)
    if name not in _REGISTRY and name != AsBuilt.name:
        shown = f"not shown: {file}, which has it, was not run"
        _STAND_INS[name] = type(
            "StandIn", (StandIn,), {"name": name, "title": name, "file": file, "shown": shown}
        )


def register(placement: type[Placement]) -> type[Placement]:
    """Class decorator that makes a placement known by its name in every command.

    Raises ValueError on a name already taken.
    """
    for attribute in ("name", "title", "citation", "year"):
        if not hasattr(placement, attribute):
            raise ValueError(f"placement class {placement.__name__} must set `{attribute}`")
    known = _REGISTRY.get(placement.name)
    if known is not None and _source(known) != _source(placement):
        raise ValueError(
            f"placement name {placement.name!r} is taken by {known.__module__}.{known.__qualname__}"
        )
    _REGISTRY[placement.name] = placement
    return placement


def _source(placement: type[Placement]) -> tuple[str, str]:
    """Returns the file of a class, and its name there. A user's file may be loaded twice in one
    process, by path and by import, under two names of modules: the same source is not a clash.
    """
    module = sys.modules.get(placement.__module__)
    return getattr(module, "__file__", None) or placement.__module__, placement.__qualname__


def registered() -> dict[str, type[Placement]]:
    """Returns all placements by name, in alphabetical order. Raises ValueError for a formula that
    nothing can be made of.
    """
    return {name: _readable(placement) for name, placement in sorted(_REGISTRY.items())}


def _readable(placement: type[Placement]) -> type[Placement]:
    # Not where it is registered: its file may define below what it uses.
    if placement not in _READ and not placement.__module__.startswith(f"{__package__}.formulas."):
        if fault := formula_fault(placement):
            raise ValueError(f"{_source(placement)[0]}: placement {placement.name!r}: {fault}")
        _READ.add(placement)
    return placement


def named(name: str) -> type[Placement]:
    """Returns the placement of that name, however it is written: `Pre-LN`, `pre_ln` and `preln` are
    `pre-ln`. With `+qk-norm` behind it, as in `pre-ln+qk-norm-whole`, it has norms on queries and
    keys.

    Raises ValueError naming the nearest known one, if any is near, or as `registered`.
    """
    plain, norm = _parted(name)
    if norm is not None:
        return with_query_key_norm(named(plain), norm)
    if name in _REGISTRY:
        return _readable(_REGISTRY[name])
    alike = [known for known in _REGISTRY if _letters(known) == _letters(name)]
    if len(alike) == 1:
        return _readable(_REGISTRY[alike[0]])
    if name in _STAND_INS:
        return _STAND_INS[name]
    written = name.lower().replace("_", "-").replace(" ", "-")
    near = difflib.get_close_matches(written, _REGISTRY, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    if _letters(name) in ("qknorm", "querykeynorm"):
        meant = (
            "norms on queries and keys go with a placement, as pre-ln+qk-norm, and `normscope "
            "choose qk-norm` says what is known of them; "
        )
    raise ValueError(
        f"unknown placement {name!r}; {meant}`normscope placements` lists all, and --import "
        "FILE.py, or importing the file in Python, registers your own"
    )


def beside(placement: str, words: str) -> str:
    """Returns the name of a placement with norms on queries and keys in the words of
    `QueryKeyNorm.named`, such as head or whole; "none" leaves it as it is.

    Raises ValueError for an unknown placement, and for other words.
    """
    plain = named(placement)
    if words == "none":
        return plain.name
    return with_query_key_norm(plain, QueryKeyNorm.named(words)).name


def _parted(name: str) -> tuple[str, QueryKeyNorm | None]:
    """Splits off norms on queries and keys. Raises ValueError for such that there are not."""
    plain, sign, beside = name.partition("+")
    beside = beside.strip().lower().replace("_", "-")
    if not sign or not beside.startswith(SUFFIX):
        return name, None
    return plain.strip(), QueryKeyNorm.named(beside.removeprefix(SUFFIX).lstrip("-"))


def _letters(name: str) -> str:
    """Returns a name without what people write differently: case, spaces, hyphens and
    underscores.
    """
    return re.sub(r"[\s_-]", "", name.lower())
