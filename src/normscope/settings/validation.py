"""From a nested table to a frozen dataclass, with errors that name the key, what came and what is allowed."""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import UserError
from .tables import as_json, check_choice, choices, near, nearest, spelled

_Config = TypeVar("_Config")


def validated(made: type[_Config], table: Mapping[str, Any], *, source: str = "") -> _Config:
    """A dataclass made of a table, every key and type checked. Raises UserError.

    source: what its message calls the table, such as the file it was read from.
    """
    where = f"{source}: " if source else ""
    try:
        table = _with_names(made, table)
    except ValueError as error:
        raise UserError(f"{where}{error}") from None
    try:
        # As JSON, because strict validation of Python values would refuse lists for tuples and tables for dataclasses.
        config: _Config = _adapter(cast(Any, made)).validate_json(as_json(table))
    except ValidationError as error:
        raise UserError(f"{where}{_explain(error, made)}") from None
    return config


def _with_names(made: Any, table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The table with every name as its list has it. Raises ValueError for one that is in no list."""
    found, hints = dict(table), typing.get_type_hints(made)
    for key in found.keys() & hints.keys():
        value, (names, others) = found[key], choices(hints[key])
        if isinstance(value, Mapping) and dataclasses.is_dataclass(hints[key]):
            found[key] = _with_names(hints[key], value, f"{prefix}{key}.")
        elif isinstance(value, str) and names and str not in others:
            found[key] = spelled(value, names)
            check_choice(f"{prefix}{key}", found[key], names, otherwise=" or a number" if int in others else "")
    return found


@cache
def _adapter(made: Any) -> TypeAdapter[Any]:
    for section in {made, *_inner(made)}:
        section.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    return TypeAdapter(made)


def _inner(kind: Any) -> Iterator[type[Any]]:
    """Every dataclass that a type holds."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
                yield field.type
            yield from _inner(field.type)
    for part in typing.get_args(kind):
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            yield part
        yield from _inner(part)


def _explain(error: ValidationError, made: type[Any]) -> str:
    """The first problem in plain words; for an unknown key, the nearest known one."""
    problem = error.errors()[0]
    if problem["type"] == "unexpected_keyword_argument":
        key = ".".join(map(str, problem["loc"]))
        return f"unknown key {key!r}; {_choice(key, problem['input'], made) or nearest(key, _known(made))}"
    key = _known_part(problem["loc"], made)
    # Each member of a union has a complaint of its own; any of them may be the one that was meant.
    messages = [p["msg"].removeprefix("Value error, ") for p in error.errors() if _known_part(p["loc"], made) == key]
    prefix = f"{key}: " if key else ""
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return prefix + ", or ".join(dict.fromkeys(messages)) + got


def _choice(key: str, value: object, made: type[Any]) -> str:
    """Which setting may be meant that lists a name near the value, in a section that the key names; "" for none."""
    named = [field for field in _sections(made) if field.name in key.split(".") and isinstance(value, str)]
    for field in sorted(named, key=lambda field: -key.split(".").index(field.name)):
        for name, hint in typing.get_type_hints(field.type).items():
            if close := near(str(value), choices(hint)[0]):
                return f"did you mean {field.name}.{name}={close[0]}?"
    return ""


def _known(made: type[Any]) -> list[str]:
    """Every key, those of sections first."""
    inner = [f"{f.name}.{key}" for f in _sections(made) for key in _known(cast(Any, f.type))]
    return inner + [field.name for field in dataclasses.fields(made)]


def _sections(made: type[Any]) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(made) if dataclasses.is_dataclass(f.type)]


def _known_part(location: tuple[int | str, ...], made: type[Any]) -> str:
    """The dotted key of an error's location, without what pydantic adds for the members of a union."""
    if not location:
        return ""
    inner = {field.name: field.type for field in _sections(made)}.get(str(location[0]))
    below = _known_part(location[1:], cast(Any, inner)) if inner else ""
    return f"{location[0]}.{below}" if below else str(location[0])
