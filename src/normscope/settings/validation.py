"""The check of given values against what is asked for: tables of settings, and arguments of the
public functions.

Errors name the key or the argument, what came and what is allowed.
"""

import dataclasses
import difflib
import inspect
import numbers
import reprlib
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import UserError, no_end
from .tables import (
    as_json,
    check_choice,
    choices,
    choices_of,
    members_of,
    near,
    nearest,
    spelled,
    types_of,
)

_Config = TypeVar("_Config")


def validated(made: type[_Config], table: Mapping[str, Any], *, source: str = "") -> _Config:
    """Returns a dataclass made of a table, every key and type checked. Raises UserError.

    source: what its message calls the table, such as the file it was read from.
    """
    where = f"{source}: " if source else ""
    try:
        table = _with_names(made, table)
    except ValueError as error:
        raise UserError(f"{where}{error}") from None
    try:
        # As JSON, because strict validation of Python values would refuse lists for tuples and
        # tables for dataclasses.
        config: _Config = _adapter(cast(Any, made)).validate_json(as_json(table))
    except ValidationError as error:
        raise UserError(f"{where}{_explain(error, made)}") from None
    return config


def _with_names(made: Any, table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the table with every name as its list has it. Raises ValueError for one that is in no
    list.
    """
    found, kinds = dict(table), types_of(made)
    for key in found.keys() & kinds.keys():
        value, (names, others) = found[key], choices_of(made)[key]
        if isinstance(value, Mapping) and dataclasses.is_dataclass(kinds[key]):
            found[key] = _with_names(kinds[key], value, f"{prefix}{key}.")
        elif isinstance(value, str) and names and str not in others:
            found[key] = spelled(value, names)
            check_choice(
                f"{prefix}{key}",
                found[key],
                names,
                otherwise=" or a number" if int in others else "",
            )
    return found


@cache
def _adapter(made: Any) -> TypeAdapter[Any]:
    for section in {made, *_inner(made)}:
        section.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    return TypeAdapter(made)


def _inner(kind: Any) -> Iterator[type[Any]]:
    """Yields every dataclass that a type holds."""
    held = (
        [field.type for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    )
    for part in (*held, *typing.get_args(kind)):
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            yield part
        yield from _inner(part)


def _explain(error: ValidationError, made: type[Any]) -> str:
    """Returns the first problem in plain words; for an unknown key, the nearest known one."""
    problem = error.errors()[0]
    if problem["type"] == "unexpected_keyword_argument":
        key = ".".join(map(str, problem["loc"]))
        return (
            f"unknown key {key!r}; "
            f"{_choice(key, problem['input'], made) or nearest(key, _known(made))}"
        )
    key = _known_part(problem["loc"], made)
    # Each member of a union has a complaint of its own; any of them may be the one that was meant.
    messages = [
        p["msg"].removeprefix("Value error, ")
        for p in error.errors()
        if _known_part(p["loc"], made) == key
    ]
    prefix = f"{key}: " if key else ""
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return prefix + ", or ".join(dict.fromkeys(messages)) + got


def _choice(key: str, value: object, made: type[Any]) -> str:
    """Suggests the setting, in a section that the key names, that lists a name near the value; ""
    for none.
    """
    named = [
        field
        for field in _sections(made)
        if field.name in key.split(".") and isinstance(value, str)
    ]
    for field in sorted(named, key=lambda field: -key.split(".").index(field.name)):
        for name, hint in typing.get_type_hints(field.type).items():
            if close := near(str(value), choices(hint)[0]):
                return f"did you mean {field.name}.{name}={close[0]}?"
    return ""


def _known(made: type[Any]) -> list[str]:
    """Returns every key, those of sections first."""
    inner = [f"{f.name}.{key}" for f in _sections(made) for key in _known(cast(Any, f.type))]
    return inner + [field.name for field in dataclasses.fields(made)]


def _sections(made: type[Any]) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(made) if dataclasses.is_dataclass(f.type)]


def _known_part(location: tuple[int | str, ...], made: type[Any]) -> str:
    """Returns the dotted key of an error's location, without what pydantic adds for the members of
    a union.
    """
    if not location:
        return ""
    inner = {field.name: field.type for field in _sections(made)}.get(str(location[0]))
    below = _known_part(location[1:], cast(Any, inner)) if inner else ""
    return f"{location[0]}.{below}" if below else str(location[0])


_Function = TypeVar("_Function", bound=Callable[..., Any])
_WORDS: Mapping[Any, str] = {
    float: "a number",
    int: "a whole number",
    bool: "True or False",
    str: "text",
    Path: "a path",
    Mapping: "a mapping",
    Callable: "a function",
    type: "a class",
    tuple: "a pair",
    Sequence: "a list",
    Collection: "a list",
    Iterable: "something to go through",
}
_SEVERAL: Mapping[Any, str] = {float: "numbers", int: "whole numbers", str: "texts"}
_ABSTRACT = {float: numbers.Real, int: numbers.Integral}
"""numpy's numbers are numbers too."""


def checked(function: _Function) -> _Function:
    """Returns the function, whose arguments are looked at before it runs.

    A name of a list (`Literal`) may be written in any case. Raises ValueError for a value that the
    annotation does not allow, saying what came and what is allowed, TypeError for an argument
    that there is not, with the nearest one, and UserError where code of the caller's that it runs
    asks for the end of the program.
    """
    signature = inspect.signature(function)

    @cache
    def hints() -> dict[str, Any]:
        return typing.get_type_hints(function)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [name for name in kwargs if name not in signature.parameters]
            near = (
                difflib.get_close_matches(unknown[0], signature.parameters, n=1) if unknown else []
            )
            raise TypeError(f"{error}{f'; did you mean {near[0]!r}?' if near else ''}") from None
        for name, value in given.arguments.items():
            hint = hints().get(name, Any)
            match signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    given.arguments[name] = tuple(_held(name, one, hint) for one in value)
                case inspect.Parameter.VAR_KEYWORD:
                    each = (
                        typing.get_type_hints(typing.get_args(hint)[0])
                        if typing.get_args(hint)
                        else {}
                    )
                    given.arguments[name] = {
                        key: _held(key, one, each.get(key, Any)) for key, one in value.items()
                    }
                case _:
                    given.arguments[name] = _held(name, value, hint)
        with no_end():
            return function(*given.args, **given.kwargs)

    return cast(_Function, called)


def _held(name: str, value: Any, hint: Any) -> Any:
    """Returns the value; a name as its list has it. Raises ValueError for what the hint does not
    allow.
    """
    names, others = choices(hint)
    # None goes without saying, and names are listed.
    unnamed = [
        m
        for m in members_of(hint)
        if m is not type(None) and typing.get_origin(m) is not typing.Literal
    ]
    words = list(dict.fromkeys(map(_words, unnamed)))
    if names and isinstance(value, str) and str not in others:
        found = spelled(value, names)
        check_choice(name, found, names, otherwise="".join(f" or {one}" for one in words))
        return found
    if any(_fits(value, member) for member in members_of(hint)):
        return value
    allowed = [f"one of {', '.join(names)}"] * bool(names) + words
    raise ValueError(f"{name} must be {' or '.join(allowed)}, got {_came(value)}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in _ABSTRACT:
        return isinstance(value, _ABSTRACT[origin]) and not isinstance(value, bool)
    if origin is typing.Literal:
        return value in inner
    if origin in (Sequence, Collection, Iterable):
        if isinstance(value, str | bytes | Mapping | type) or not hasattr(value, "__iter__"):
            return False
        # Others may be long, or be read once.
        if not inner or not isinstance(value, list | tuple):
            return True
        members = list(members_of(inner[0]))
        return all(_fits_any(one, members) for one in value)
    if origin is tuple:
        return isinstance(value, list | tuple) and len(value) == len(inner)
    if origin is Callable:
        # A class whose instances are called, such as a loss, makes one and is none.
        made = isinstance(value, type) and any("__call__" in vars(base) for base in value.__mro__)
        return callable(value) and not made
    return origin is Any or not isinstance(origin, type) or isinstance(value, origin)


def _fits_any(value: Any, hints: Iterable[Any]) -> bool:
    """Tells whether a value has one of several types."""
    return any(_fits(value, hint) for hint in hints)


def _words(hint: Any) -> str:
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (Sequence, Collection) and inner and inner[0] in _SEVERAL:
        return f"a list of {_SEVERAL[inner[0]]}"
    name = getattr(origin, "__name__", str(origin))
    return (
        _WORDS.get(origin)
        or f"{'an' if name[0] in 'AEIOU' else 'a'} {'tensor' if name == 'Tensor' else name}"
    )


def _came(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}: give an instance, such as {value.__name__}(...)"
    if isinstance(value, str):
        return f'"{value[:60]}" as text'
    plain = value is None or isinstance(value, bool | int | float | list | tuple | dict)
    return reprlib.repr(value) if plain else f"an object of class {type(value).__name__}"
