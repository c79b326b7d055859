"""Files that a user brings: a folder is a run by its `config.toml`, and Python files may register placements."""

import importlib.util
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import disk_errors

CONFIG_FILE = "config.toml"


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run folder. Raises UserError where the disk does not say."""
    with disk_errors(f"reading {folder}"):
        return (folder / CONFIG_FILE).is_file()


def refuse_no_run(folder: Path) -> None:
    """Raise UserError where `folder` is no run folder."""
    if not is_run(folder):
        raise UserError(f"{folder} is not a run folder: it has no {CONFIG_FILE}")


def import_file(path: Path) -> None:
    """Run a user's Python file so that it registers its placements; once per process. Raises UserError."""
    try:
        there = path.is_file()
        path = path.resolve()
    except (OSError, ValueError) as error:  # a name too long for a file, or with a NUL in it
        raise UserError(f"cannot import {path}: {error}") from error
    # The whole path, so that two files of the same name stay two modules, and a placement name both claim is refused.
    name = f"normscope_user_{zlib.crc32(bytes(path)):08x}_{path.stem}"
    if name in sys.modules:
        return
    if not there:
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


def run_imports(table: Mapping[str, Any], *, source: str) -> None:
    """Run the files that a configuration names under `imports`. Raises UserError."""
    files = table.get("imports", [])
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise UserError(f"{source}: imports: give a list of Python files, got {files!r}")
    for file in files:
        import_file(Path(file))
