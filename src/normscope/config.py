"""A run's whole configuration, between TOML text and frozen dataclasses."""

import dataclasses
import difflib
import importlib.util
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import ConfigDict, TypeAdapter, ValidationError

from .data.opening import DataConfig
from .errors import UserError
from .model import ModelConfig
from .optim import OptimizerConfig, ScheduleConfig
from .tasks import TranslationConfig
from .train import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything a run depends on, beside the machine it runs on."""

    task: Literal["translation"] = "translation"
    seed: int = 1
    """Of the initial weights, the order of the batches and the dropout masks."""
    imports: tuple[str, ...] = ()
    """Python files that register placements of your own."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    translation: TranslationConfig = field(default_factory=TranslationConfig)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")


for _class in (RunConfig, DataConfig, ModelConfig, OptimizerConfig, ScheduleConfig, TrainConfig, TranslationConfig):
    setattr(_class, "__pydantic_config__", ConfigDict(extra="forbid", strict=True))  # noqa: B010
_ADAPTER = TypeAdapter(RunConfig)


def load(path: Path | None, overrides: Iterable[str] = (), imports: Iterable[str] = ()) -> RunConfig:
    """The configuration in a TOML file (None for all defaults), changed by `a.b=value` overrides.

    imports: Python files to run first, beside those the file names. Raises UserError naming file and key.
    """
    table = _read(path)
    for override in overrides:
        _apply(table, override)
    if imports:
        table["imports"] = [*table.get("imports", []), *imports]
    return of_table(table, source=str(path) if path else "configuration")


def of_table(table: Mapping[str, Any], *, source: str) -> RunConfig:
    """Validate a nested table. Raises UserError; `source` is what its message calls the table."""
    for file in table.get("imports", []):
        import_file(Path(file))
    try:
        # As JSON, because strict validation of Python values would refuse lists for tuples and tables for dataclasses.
        return _ADAPTER.validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        raise UserError(f"{source}: {_explain(error)}") from None


def to_toml(config: RunConfig) -> str:
    """The complete configuration as TOML, readable by `load`."""
    return tomli_w.dumps(_lists(dataclasses.asdict(config)))


def replaced(config: RunConfig, **changes: Any) -> RunConfig:
    """The configuration with some dotted keys changed (`a__b=value`), validated again. Raises UserError."""
    table = _lists(dataclasses.asdict(config))
    for key, value in changes.items():
        _set(table, key.split("__"), value, key)
    return of_table(table, source="configuration")


def import_file(path: Path) -> None:
    """Run a user's Python file so that it registers its placements; once per process. Raises UserError."""
    path = path.resolve()
    name = f"normscope_user_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return
    if not path.is_file():
        raise UserError(f"--import {path}: no such file; give a Python file that registers a placement")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"--import {path}: not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UserError(f"--import {path}: {type(error).__name__}: {error}") from error


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error


def _apply(table: dict[str, Any], override: str) -> None:
    """Apply one `a.b=value`; the value is read as TOML, and as a plain string where it is none."""
    key, sign, text = override.partition("=")
    if not sign or not key.strip():
        raise UserError(f"--set takes KEY=VALUE, such as model.width=256, got {override!r}")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    _set(table, key.strip().split("."), value, override)


def _set(table: dict[str, Any], parts: list[str], value: Any, given: str) -> None:
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UserError(f"{given!r}: {part} is a value, not a section")
    table[parts[-1]] = value


def _explain(error: ValidationError) -> str:
    """The first problem in plain words; for an unknown key, the nearest known one."""
    problem = error.errors()[0]
    # Members of a union add their type's name to the location; keys of ours never contain these characters.
    location = [str(part) for part in problem["loc"] if not any(c in str(part) for c in "[(")]
    key = ".".join(location)
    if problem["type"] == "unexpected_keyword_argument":
        known = _known_keys(location[:-1])
        close = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
        return f"unknown key {key!r}; {hint}"
    message = problem["msg"].removeprefix("Value error, ")
    prefix = f"{key}: " if key else ""
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return f"{prefix}{message}{got}"


def _known_keys(location: list[str]) -> list[str]:
    fields = {f.name: f for f in dataclasses.fields(RunConfig)}
    for part in location:
        fields = {f.name: f for f in dataclasses.fields(fields[part].type)}  # type: ignore[arg-type]
    return list(fields)


def _lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
