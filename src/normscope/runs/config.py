"""A run's whole configuration, between TOML text and frozen dataclasses."""

import dataclasses
import difflib
import importlib.util
import json
import sys
import tomllib
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from pydantic import TypeAdapter, ValidationError

from ..errors import UserError
from .run_config import (
    RUN_CONFIGS,
    AnyRunConfig,
    CommonConfig,
    LanguageModelRunConfig,
    MaskedRunConfig,
    PairRunConfig,
    RunConfig,
)

__all__ = [
    "AnyRunConfig",
    "CommonConfig",
    "LanguageModelRunConfig",
    "MaskedRunConfig",
    "PairRunConfig",
    "RunConfig",
    "import_file",
    "load",
    "of_table",
    "read_override",
    "replaced",
    "to_toml",
    "translation",
]

AnyRun = TypeVar("AnyRun", bound=AnyRunConfig)


_ADAPTERS: dict[str, TypeAdapter[AnyRunConfig]] = {task: TypeAdapter(made) for task, made in RUN_CONFIGS.items()}


def load(path: Path | None, overrides: Iterable[str] = (), imports: Iterable[str] = ()) -> AnyRunConfig:
    """The configuration in a TOML file (None for all defaults), changed by `a.b=value` overrides.

    imports: Python files to run first, beside those the file names. Raises UserError naming file and key.
    """
    table = _read(path)
    for override in overrides:
        key, value = read_override(override)
        _set(table, key.split("."), value, override)
    if imports:
        table["imports"] = [*table.get("imports", []), *map(str, imports)]
    return of_table(table, source=str(path) if path else "configuration")


def translation(config: AnyRunConfig, what: str) -> RunConfig:
    """The configuration, of the one task that `what` can be done with. Raises UserError for another."""
    if not isinstance(config, RunConfig):
        raise UserError(f'{what} is for task = "translation", and this configuration has task = "{config.task}"')
    return config


def of_table(table: Mapping[str, Any], *, source: str) -> AnyRunConfig:
    """Validate a nested table. Raises UserError; `source` is what its message calls the table."""
    files = table.get("imports", [])
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise UserError(f"{source}: imports: give a list of Python files, got {files!r}")
    for file in files:
        import_file(Path(file))
    task = table.get("task", "translation")
    if task not in RUN_CONFIGS:
        raise UserError(f"{source}: task must be one of {', '.join(RUN_CONFIGS)}, got {task!r}")
    try:
        # As JSON, because strict validation of Python values would refuse lists for tuples and tables for dataclasses.
        return _ADAPTERS[task].validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        raise UserError(f"{source}: {_explain(error, RUN_CONFIGS[task])}") from None


def to_toml(config: AnyRunConfig) -> str:
    """The complete configuration as TOML, readable by `load`."""
    return tomli_w.dumps(_lists(dataclasses.asdict(config)))


def replaced(config: AnyRun, **changes: Any) -> AnyRun:
    """The configuration with some dotted keys changed (`a__b=value`), validated again. Raises UserError."""
    table = _lists(dataclasses.asdict(config))
    for key, value in changes.items():
        _set(table, key.split("__"), value, key)
    changed = of_table(table, source="configuration")
    assert isinstance(changed, type(config)), "a change of the task makes another configuration"
    return changed


def import_file(path: Path) -> None:
    """Run a user's Python file so that it registers its placements; once per process. Raises UserError."""
    path = path.resolve()
    # The whole path, so that two files of the same name stay two modules, and a placement name both claim is refused.
    name = f"normscope_user_{zlib.crc32(bytes(path)):08x}_{path.stem}"
    if name in sys.modules:
        return
    if not path.is_file():
        raise UserError(f"cannot import {path}: no such file; give a Python file that registers a placement")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"cannot import {path}: not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UserError(f"cannot import {path}: {type(error).__name__}: {error}") from error


def read_override(override: str) -> tuple[str, Any]:
    """Key and value of one `a.b=value`; the value is read as TOML, and as a plain string where it is none.

    Raises UserError.
    """
    key, sign, text = override.partition("=")
    if not sign or not key.strip():
        raise UserError(f"--set takes KEY=VALUE, such as model.width=256, got {override!r}")
    try:
        read = tomllib.loads(f"value = {text.strip()}")
    except tomllib.TOMLDecodeError:
        read = {}
    return key.strip(), read["value"] if len(read) == 1 else text.strip()


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error


def _set(table: dict[str, Any], parts: list[str], value: Any, given: str) -> None:
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UserError(f"{given!r}: {part} is a value, not a section")
    table[parts[-1]] = value


def _explain(error: ValidationError, made: type[AnyRunConfig]) -> str:
    """The first problem in plain words; for an unknown key, the nearest known one."""
    problem = error.errors()[0]
    if problem["type"] == "unexpected_keyword_argument":
        key = ".".join(map(str, problem["loc"]))
        return f"unknown key {key!r}; {_nearest(key, made)}"
    key = _known_part(problem["loc"], made)
    # Each member of a union has a complaint of its own; any of them may be the one that was meant.
    messages = [p["msg"].removeprefix("Value error, ") for p in error.errors() if _known_part(p["loc"], made) == key]
    prefix = f"{key}: " if key else ""
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return prefix + ", or ".join(dict.fromkeys(messages)) + got


def _nearest(unknown: str, made: type[AnyRunConfig]) -> str:
    """The known key that is most like it: in its section, of the same name in another one, or anywhere."""
    known = [f"{f.name}.{inner.name}" for f in _sections(made) for inner in dataclasses.fields(f.type)]  # type: ignore[arg-type]
    known += [f.name for f in dataclasses.fields(made)]
    section, _, name = unknown.rpartition(".")
    siblings = [key for key in known if key.rpartition(".")[0] == section]
    namesakes = [key for key in known if key.rpartition(".")[2] == name]
    close = namesakes or difflib.get_close_matches(unknown, siblings) or difflib.get_close_matches(unknown, known)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(siblings or known)}"


def _sections(made: type[AnyRunConfig]) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(made) if dataclasses.is_dataclass(f.type)]


def _known_part(location: tuple[int | str, ...], made: type[AnyRunConfig]) -> str:
    """The dotted key of an error's location, without what pydantic adds for the members of a union."""
    depth = 2 if location and location[0] in [f.name for f in _sections(made)] else 1
    return ".".join(map(str, location[:depth]))


def _lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
