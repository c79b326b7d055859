"""Settings as nested tables: read from TOML, written as TOML, changed by `KEY=VALUE`, and held to a
few names.
"""

import dataclasses
import difflib
import json
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w

from ..errors import UserError
from ..limits.reading import MOST_DEPTH, parse_toml, read_toml as read


def read_toml(path: Path | None) -> dict[str, Any]:
    """Returns the table in a TOML file, empty for None. Raises UserError where it cannot be
    read.
    """
    if path is None:
        return {}
    try:
        return read(path)
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}") from error


def to_toml(config: Any) -> str:
    """Returns a configuration, which is a dataclass, as TOML with every setting in it."""
    return tomli_w.dumps(as_table(config))


def as_table(config: Any) -> dict[str, Any]:
    """Returns a configuration, which is a dataclass, as nested dictionaries with lists for
    tuples.
    """
    table: dict[str, Any] = _with_lists(dataclasses.asdict(config))
    return table


def as_json(table: Mapping[str, Any]) -> str:
    """Returns a table as JSON. Values that JSON lacks, such as TOML's dates, become strings."""
    return json.dumps(table, default=str)


def read_override(override: str) -> tuple[str, Any]:
    """Key and value of one `a.b=value`; the value is read as TOML, and as a plain string where it
    is none.

    Raises UserError.
    """
    key, sign, text = override.partition("=")
    if not sign or not key.strip():
        raise UserError(f"--set takes KEY=VALUE, such as model.width=256, got {override!r}")
    try:
        table = parse_toml(f"value = {text.strip()}")
    except ValueError:
        table = {}
    return key.strip(), table["value"] if len(table) == 1 else text.strip()


def read_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """Reads every `a.b=value` by its key; of two with one key the later. Raises UserError."""
    return dict(map(read_override, overrides))


def put(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key of a nested table.

    Raises UserError where a part before the last is no section, and for more than `MOST_DEPTH`
    parts.
    """
    *sections, name = key.split(".")
    if len(sections) >= MOST_DEPTH:
        raise UserError(
            f"{key[:40]}...: a key has at most {MOST_DEPTH} parts, got {len(sections) + 1:,}"
        )
    for part in sections:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UserError(f"{key!r}: {part} is a value, not a section")
    table[name] = value


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns every value of a nested table by its dotted key."""
    rows: dict[str, Any] = {}
    for key, value in table.items():
        rows |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
        )
    return rows


def differences(there: Any, here: Any, *, apart_from: Collection[str] = ()) -> list[str]:
    """Returns the settings in which two configurations, which are dataclasses, differ, each as
    words for the user.

    apart_from: dotted keys that do not count. Nor do those that only one has: it is of another
    task, and that the tasks differ says enough.
    """
    old, new = flat(as_table(there)), flat(as_table(here))
    differing = [
        key for key in new if key in old and old[key] != new[key] and key not in apart_from
    ]
    return [f"{key}: {old[key]!r} there, {new[key]!r} now" for key in differing]


def nearest(unknown: str, known: Iterable[str]) -> str:
    """Suggests the known key that an unknown one may be meant for: of the same section, of the same
    name elsewhere, or any.
    """
    keys = list(known)
    section, _, name = unknown.rpartition(".")
    siblings = [key for key in keys if key.rpartition(".")[0] == section]
    namesakes = [key for key in keys if key.rpartition(".")[2] == name]
    close = (
        namesakes
        or difflib.get_close_matches(unknown, siblings)
        or difflib.get_close_matches(unknown, keys)
    )
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(siblings or keys)}"


def _with_lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_lists(item) for key, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def spelled(value: str, allowed: Iterable[str]) -> str:
    """Returns the name that is meant, as the list has it, whatever the case, the hyphens and the
    underscores: AdamW is adamw.

    The value itself where no name has its letters.
    """
    names = list(allowed)
    return (
        value
        if value in names
        else next((one for one in names if _letters(one) == _letters(value)), value)
    )


def near(value: str, names: list[str]) -> list[str]:
    """Returns the nearest of the names, if one is near."""
    return difflib.get_close_matches(spelled(value, names), names, n=1)


def _letters(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def check_choices(config: Any) -> None:
    """Raise ValueError where a field of a dataclass whose type lists names (`Literal`) holds none
    of them.

    A configuration calls it first in its `__post_init__`: Python itself does not look at types.
    """
    for name, (allowed, others) in choices_of(config.__class__).items():
        value = getattr(config, name)
        if allowed and not isinstance(value, others):
            check_choice(name, value, allowed, otherwise=" or a number" if int in others else "")


@cache
def types_of(made: Any) -> Mapping[str, Any]:
    """Returns the types of a dataclass's fields by name; read once for all of very many
    configurations.
    """
    hints = typing.get_type_hints(made)
    return {field.name: hints[field.name] for field in dataclasses.fields(made)}


@cache
def choices_of(made: Any) -> Mapping[str, tuple[list[str], tuple[type, ...]]]:
    """Returns what `choices` finds in the type of each field of a dataclass."""
    return {name: choices(hint) for name, hint in types_of(made).items()}


def check_choice(name: str, value: object, allowed: Iterable[str], *, otherwise: str = "") -> None:
    """Raise ValueError where `value` is none of the names that are allowed; `otherwise` says what
    else is.
    """
    names = list(allowed)
    if value in names:
        return
    close = near(value, names) if isinstance(value, str) else []
    meant = f"; did you mean {close[0]!r}?" if close else ""
    one_of = "one of " if len(names) > 1 else ""
    raise ValueError(f"{name} must be {one_of}{', '.join(names)}{otherwise}, got {value!r}{meant}")


def choices(hint: Any) -> tuple[list[str], tuple[type, ...]]:
    """Returns the names that a type lists, and the types that may stand instead of them."""
    members = list(members_of(hint))
    names = [name for member in members if _is_literal(member) for name in typing.get_args(member)]
    others = [typing.get_origin(member) or member for member in members if not _is_literal(member)]
    # Python takes an int wherever a float is asked for.
    return names, tuple(others) + ((int,) if float in others else ())


def _is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Literal


def members_of(hint: Any) -> Iterator[Any]:
    """Yields each member of a union; for another type that type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from members_of(member)
    else:
        yield hint
