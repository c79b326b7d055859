"""The rules that a project has silenced, in its pyproject.toml."""

from pathlib import Path
from typing import Any

from ...limits.reading import read_toml
from .linter import check_silenced


def silenced_in(start: Path) -> tuple[str, ...]:
    """Ids in `silence` under [tool.normscope.doctor] of the nearest pyproject.toml, from `start` upwards; () without.

    Raises ValueError with file and key where that is no list of rules.
    """
    path = start.resolve()
    for folder in (path, *path.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _silenced(file)
    return ()


def _silenced(file: Path) -> tuple[str, ...]:
    try:
        table: Any = read_toml(file)
    except ValueError as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from error
    at = ""
    for key in ("tool", "normscope", "doctor"):
        at = f"{at}.{key}" if at else key
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ValueError(f"{file}: {at} must be a table, got {table!r}")
    unknown = [key for key in table if key != "silence"]
    if unknown:
        raise ValueError(f"{file}: unknown key {at}.{unknown[0]}; allowed is silence")
    ids = table.get("silence", [])
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise ValueError(f"{file}: {at}.silence must be a list of rule ids, got {ids!r}")
    try:
        check_silenced(ids)
    except ValueError as error:
        raise ValueError(f"{file}: {at}.silence: {error}") from error
    return tuple(ids)
