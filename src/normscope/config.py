"""A run's whole configuration, between TOML text and frozen dataclasses."""

import dataclasses
import difflib
import importlib.util
import json
import sys
import tomllib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import ConfigDict, TypeAdapter, ValidationError

from .data.opening import DataConfig
from .errors import UserError
from .model import ModelConfig
from .optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig
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
    adaptive: AdaptiveConfig = field(default_factory=AdaptiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    translation: TranslationConfig = field(default_factory=TranslationConfig)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")


for _class in (
    RunConfig,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    AdaptiveConfig,
    TrainConfig,
    TranslationConfig,
):
    setattr(_class, "__pydantic_config__", ConfigDict(extra="forbid", strict=True))  # noqa: B010
_ADAPTER = TypeAdapter(RunConfig)


def load(path: Path | None, overrides: Iterable[str] = (), imports: Iterable[str] = ()) -> RunConfig:
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


def of_table(table: Mapping[str, Any], *, source: str) -> RunConfig:
    """Validate a nested table. Raises UserError; `source` is what its message calls the table."""
    files = table.get("imports", [])
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise UserError(f"{source}: imports: give a list of Python files, got {files!r}")
    for file in files:
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


def _explain(error: ValidationError) -> str:
    """The first problem in plain words; for an unknown key, the nearest known one."""
    problem = error.errors()[0]
    if problem["type"] == "unexpected_keyword_argument":
        key = ".".join(map(str, problem["loc"]))
        return f"unknown key {key!r}; {_nearest(key)}"
    key = _known_part(problem["loc"])
    # Each member of a union has a complaint of its own; any of them may be the one that was meant.
    messages = [p["msg"].removeprefix("Value error, ") for p in error.errors() if _known_part(p["loc"]) == key]
    prefix = f"{key}: " if key else ""
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return prefix + ", or ".join(dict.fromkeys(messages)) + got


def _nearest(unknown: str) -> str:
    """The known key that is most like it: in its section, of the same name in another one, or anywhere."""
    known = [f"{f.name}.{inner.name}" for f in _sections() for inner in dataclasses.fields(f.type)]  # type: ignore[arg-type]
    known += [f.name for f in dataclasses.fields(RunConfig)]
    section, _, name = unknown.rpartition(".")
    siblings = [key for key in known if key.rpartition(".")[0] == section]
    namesakes = [key for key in known if key.rpartition(".")[2] == name]
    close = namesakes or difflib.get_close_matches(unknown, siblings) or difflib.get_close_matches(unknown, known)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(siblings or known)}"


def _sections() -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(RunConfig) if dataclasses.is_dataclass(f.type)]


def _known_part(location: tuple[int | str, ...]) -> str:
    """The dotted key of an error's location, without what pydantic adds for the members of a union."""
    depth = 2 if location and location[0] in [f.name for f in _sections()] else 1
    return ".".join(map(str, location[:depth]))


def _lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
