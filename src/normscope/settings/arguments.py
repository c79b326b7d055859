"""Arguments of the public functions, held to what the functions' own signatures say of them."""

import difflib
import inspect
import numbers
import reprlib
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from .tables import check_choice, choices, members_of, spelled

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
    """The function, whose arguments are looked at before it runs.

    A name of a list (`Literal`) may be written in any case. Raises ValueError for a value that the annotation does not
    allow, saying what came and what is allowed, and TypeError for an argument that there is not, with the nearest one.
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
            near = difflib.get_close_matches(unknown[0], signature.parameters, n=1) if unknown else []
            raise TypeError(f"{error}{f'; did you mean {near[0]!r}?' if near else ''}") from None
        for name, value in given.arguments.items():
            hint = hints().get(name, Any)
            match signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    given.arguments[name] = tuple(_held(name, one, hint) for one in value)
                case inspect.Parameter.VAR_KEYWORD:
                    each = typing.get_type_hints(typing.get_args(hint)[0]) if typing.get_args(hint) else {}
                    given.arguments[name] = {key: _held(key, one, each.get(key, Any)) for key, one in value.items()}
                case _:
                    given.arguments[name] = _held(name, value, hint)
        return function(*given.args, **given.kwargs)

    return cast(_Function, called)


def _held(name: str, value: Any, hint: Any) -> Any:
    """The value; a name as its list has it. Raises ValueError for what the hint does not allow."""
    names, others = choices(hint)
    words = list(dict.fromkeys(_words(one) for one in members_of(hint) if not _is_named(one)))
    if names and isinstance(value, str) and str not in others:
        found = spelled(value, names)
        check_choice(name, found, names, otherwise="".join(f" or {one}" for one in words))
        return found
    if any(_fits(value, member) for member in members_of(hint)):
        return value
    allowed = [f"one of {', '.join(names)}"] * bool(names) + words
    raise ValueError(f"{name} must be {' or '.join(allowed)}, got {_came(value)}")


def _is_named(hint: Any) -> bool:
    """None goes without saying, and names are listed."""
    return hint is type(None) or typing.get_origin(hint) is typing.Literal


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in _ABSTRACT:
        return isinstance(value, _ABSTRACT[origin]) and not isinstance(value, bool)
    if origin is typing.Literal:
        return value in inner
    if origin in (Sequence, Collection, Iterable):
        if isinstance(value, str | bytes | Mapping | type) or not hasattr(value, "__iter__"):
            return False
        known = value if inner and isinstance(value, list | tuple) else ()  # others may be long, or be read once
        return all(any(_fits(one, member) for member in members_of(inner[0])) for one in known)
    if origin is tuple:
        return isinstance(value, list | tuple) and len(value) == len(inner)
    if origin is Callable:
        # A class whose instances are called, such as a loss, makes one and is none.
        made = isinstance(value, type) and any("__call__" in vars(base) for base in value.__mro__)
        return callable(value) and not made
    return origin is Any or not isinstance(origin, type) or isinstance(value, origin)


def _words(hint: Any) -> str:
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (Sequence, Collection) and inner and inner[0] in _SEVERAL:
        return f"a list of {_SEVERAL[inner[0]]}"
    name = getattr(origin, "__name__", str(origin))
    return _WORDS.get(origin) or f"{'an' if name[0] in 'AEIOU' else 'a'} {'tensor' if name == 'Tensor' else name}"


def _came(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}: give an instance, such as {value.__name__}(...)"
    if isinstance(value, str):
        return f'"{value[:60]}" as text'
    plain = value is None or isinstance(value, bool | int | float | list | tuple | dict)
    return reprlib.repr(value) if plain else f"an object of class {type(value).__name__}"
