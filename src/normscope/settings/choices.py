"""Values that are one of a few names: refused as they are given, wherever a configuration is made."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any


def check_choices(config: Any) -> None:
    """Raise ValueError where a field of a dataclass whose type lists names (`Literal`) holds none of them.

    A configuration calls it first in its `__post_init__`: Python itself does not look at types.
    """
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        allowed, others = _choices(hints[field.name])
        value = getattr(config, field.name)
        if allowed and not isinstance(value, others):
            check_choice(field.name, value, allowed, otherwise=" or a number" if int in others else "")


def check_choice(name: str, value: object, allowed: Iterable[str], *, otherwise: str = "") -> None:
    """Raise ValueError where `value` is none of the names that are allowed; `otherwise` says what else is."""
    names = list(allowed)
    if value in names:
        return
    near = difflib.get_close_matches(value, names, n=1) if isinstance(value, str) else []
    meant = f"; did you mean {near[0]!r}?" if near else ""
    one_of = "one of " if len(names) > 1 else ""
    raise ValueError(f"{name} must be {one_of}{', '.join(names)}{otherwise}, got {value!r}{meant}")


def _choices(hint: Any) -> tuple[list[str], tuple[type, ...]]:
    """The names that a type lists, and the types that may stand instead of them."""
    members = list(_members(hint))
    names = [name for member in members if _is_literal(member) for name in typing.get_args(member)]
    others = [typing.get_origin(member) or member for member in members if not _is_literal(member)]
    # Python takes an int wherever a float is asked for.
    return names, tuple(others) + ((int,) if float in others else ())


def _is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Literal


def _members(hint: Any) -> Iterator[Any]:
    """Of a union, each; else the type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from _members(member)
    else:
        yield hint
