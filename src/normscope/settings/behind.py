"""The user's own code that a Python file of the user's imports, found without running any."""

import ast
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ..errors import is_users_code

_OURS = ("normscope", "normscope_studies")
"""Packages whose hash a run keeps by itself."""


def imported_behind(file: Path, content: bytes) -> list[Path]:
    """Returns the files of the user's code that `file` imports, and that those do, sorted.

    content: of the file. Installed packages are left out, and so is what only running the code
    would tell: names that are put together, and files that are read.
    """
    found = set[Path]()
    left = [(file, content)]
    while left:
        importing, source = left.pop()
        for path in _imported(importing, source, beside=file.parent):
            if path not in found and path != file:
                found.add(path)
                left.append((path, path.read_bytes()))
    return sorted(found)


def _imported(file: Path, content: bytes, *, beside: Path) -> Iterator[Path]:
    """Files of the user's that a file names in an import, wherever in it that stands."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # whoever runs it is told
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _of_name(alias.name, [beside])
        elif isinstance(node, ast.ImportFrom):
            above = file.parents[: node.level][-1:] if node.level else []
            module = f"{node.module}." if node.module else ""
            for alias in node.names:
                yield from _of_name(f"{module}{alias.name}", list(above) or [beside], bool(above))


def _of_name(name: str, folders: list[Path], relative: bool = False) -> Iterator[Path]:
    """The files that importing `a.b.c` runs, as far as they are the user's: a, a.b and a.b.c."""
    if name.partition(".")[0] in _OURS and not relative:
        return
    places = [str(folder) for folder in folders]
    for number, part in enumerate(name.split(".")):
        # What is installed goes first, as the file's folder stands behind all others.
        spec = _spec(part, None) if number == 0 and not relative else None
        spec = spec or _spec(part, places)
        if spec is None:
            return
        if spec.origin and spec.origin.endswith(".py") and is_users_code(spec.origin):
            yield Path(spec.origin).resolve()
        if spec.submodule_search_locations is None:
            return
        places = list(spec.submodule_search_locations)


def _spec(name: str, places: list[str] | None) -> ModuleSpec | None:
    """Finds a module's spec; None for built-in modules, and where nothing finds one."""
    try:
        return PathFinder.find_spec(name, places)
    except (ImportError, AttributeError, ValueError, OSError):
        return None
