"""A run's whole configuration, between TOML text and frozen dataclasses."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserError
from ..settings.tables import as_table, flat, put, read_overrides, read_toml
from ..tasks.registry import config_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder

Config = TypeVar("Config", bound=RunConfig)


def load(path: Path | None, overrides: Iterable[str] = (), imports: Iterable[str | Path] = ()) -> RunConfig:
    """The configuration in a TOML file (None for all defaults), changed by `a.b=value` overrides.

    imports: Python files to run first, beside those the file names. Raises UserError naming file and key.
    """
    table = read_toml(path)
    table.pop("engine", None)  # where several runs train, and nothing of what they are
    for key, value in read_overrides(overrides).items():
        put(table, key, value)
    if imports:
        table["imports"] = [*table.get("imports", []), *map(str, imports)]
    return config_of(table, source=str(path) if path else "configuration")


def engine_table(path: Path | None) -> dict[str, Any]:
    """What a TOML file says of the machines that its runs train on. Raises UserError where it is no table."""
    table = read_toml(path).get("engine", {})
    if not isinstance(table, dict):
        raise UserError(f'{path}: engine is a table, such as [engine] with a line name = "ray"; got {table!r}')
    return table


def places(path: Path | None, overrides: Iterable[str] = ()) -> dict[str, str]:
    """What sets each dotted key that is not left to its default: the file, or `--set`. Raises UserError."""
    table = read_toml(path)
    table.pop("engine", None)
    found = dict.fromkeys(flat(table), str(path))
    for key, value in read_overrides(overrides).items():
        # An override may set a whole section: optimizer={peak_lr=1e-3}.
        found |= dict.fromkeys(flat({key: value}), "--set")
    return found


def load_run_config(folder: RunFolder) -> RunConfig:
    """The configuration of the run in a folder. Raises UserError where it is not as it was written."""
    return config_of(folder.config_table(), source=str(folder.config_file))


def changed(config: Config, settings: Iterable[str]) -> Config:
    """The configuration with `a.b=value` changes, validated again. Raises UserError."""
    return _with(config, read_overrides(settings))


def replaced(config: Config, **changes: Any) -> Config:
    """The configuration with some dotted keys changed (`a__b=value`), validated again. Raises UserError."""
    return _with(config, {key.replace("__", "."): value for key, value in changes.items()})


def _with(config: Config, changes: Mapping[str, Any]) -> Config:
    table = as_table(config)
    for key, value in changes.items():
        put(table, key, list(value) if isinstance(value, tuple) else value)
    made = config_of(table, source="configuration")
    if not isinstance(made, type(config)):
        raise UserError(f"task is {config.task!r} and cannot be changed here, got {made.task!r}")
    return made
