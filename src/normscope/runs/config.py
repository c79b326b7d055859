"""A run's whole configuration: from TOML to frozen dataclasses, and resolved so that no `auto` is left open."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from ..errors import UserError
from ..settings.files import given_config, run_named
from ..settings.tables import as_table, put, read_overrides
from ..tasks.registry import config_of, task_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from ..train.device import available_cores, choose_device, refuse_precision

_Config = TypeVar("_Config", bound=RunConfig)


def load(path: Path | None, overrides: Iterable[str] = (), imports: Iterable[str | Path] = ()) -> RunConfig:
    """The configuration that `given_config` reads, validated. Raises UserError naming file and key."""
    given = given_config(path, overrides, imports)
    return config_of(given.table, source=given.source)


def load_run_config(folder: RunFolder) -> RunConfig:
    """The configuration of the run in a folder. Raises UserError where it is not as it was written."""
    return config_of(folder.config_table(), source=str(folder.config_file))


def trust_run(path: Path) -> None:
    """Run the Python files that a run names, on the user's word. Raises UserError, also for what has changed since."""
    folder = RunFolder(path)
    run_named(folder.config_table(), source=str(folder.config_file))


def changed(config: _Config, settings: Iterable[str]) -> _Config:
    """The configuration with `a.b=value` changes, validated again. Raises UserError."""
    return _with(config, read_overrides(settings))


def replaced(config: _Config, **changes: Any) -> _Config:
    """The configuration with some dotted keys changed (`a__b=value`), validated again. Raises UserError."""
    return _with(config, {key.replace("__", "."): value for key, value in changes.items()})


def _with(config: _Config, changes: Mapping[str, Any]) -> _Config:
    table = as_table(config)
    for key, value in changes.items():
        put(table, key, list(value) if isinstance(value, tuple) else value)
    made = config_of(table, source="configuration")
    if not isinstance(made, type(config)):
        raise UserError(f"task is {config.task!r} and cannot be changed here, got {made.task!r}")
    return made


def resolve(config: _Config, folder: RunFolder) -> _Config:
    """The configuration with every `auto` replaced, and paths made absolute.

    By what the run in `folder` began with, where there is one: it goes on as it was on a machine with more cores, too.
    Otherwise by what this machine gives. Raises UserError for a device or a precision that it does not have, unless the
    run is over that had that device: what came of it can be read anywhere.
    """
    train, is_over = config.train, False
    if folder.is_run:
        began = load_run_config(folder).train
        automatic = [name for name in ("device", "precision", "threads") if getattr(train, name) == "auto"]
        train = dataclasses.replace(train, **{name: getattr(began, name) for name in automatic})
        is_over = train.device == began.device and folder.last_event in ("finished", "non-finite")
    device = torch.device(train.device) if is_over else choose_device(train.device)
    precision, threads = train.precision, train.threads
    if precision == "auto":
        precision = "bf16" if device.type == "cuda" else "fp32"
    refuse_precision(device, precision)
    train = dataclasses.replace(
        train,
        device=str(device),
        precision=precision,
        threads=available_cores() if threads == "auto" else threads,
        input_workers=train.input_workers if train.input_workers != "auto" else (2 if device.type == "cuda" else 0),
    )
    resolved: _Config = task_of(config).with_absolute_paths(dataclasses.replace(config, train=train))
    return resolved
