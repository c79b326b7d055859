"""Which code made a number: hashes of the package's own source, and the commit where there is a repository."""

import ast
import hashlib
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from . import __version__

ROOT = Path(__file__).parent
_MEASURING = "studies"
"""The room whose files are counted one by one: a study's page may change without its measurements being made again."""


def provenance() -> dict[str, str]:
    """Version, hash of the whole package's source, and the commit it was checked out at.

    `commit` is empty where the package does not lie in a git repository that tracks it, or git is not there; it ends in
    " (modified)" where a file of the package differs from that commit.
    """
    return {"normscope": __version__, "source_sha256": source_sha256(), "commit": _commit()}


@cache
def source_sha256() -> str:
    """SHA-256 over every file of the package: its Python files, templates and constants."""
    return _digest(_files(ROOT))


@cache
def source_of(module: str) -> str:
    """SHA-256 over the source that a module's results depend on: its own and that of all it imports of this package.

    module: such as "normscope.studies.lemmas.measure". Raises ValueError for a module that is not ours.
    """
    return _digest(files_behind(module))


def files_behind(module: str) -> list[Path]:
    """What `source_of` hashes. Of `studies` the files that are imported count, of every other room all files:
    placements are discovered, not imported by name. Raises ValueError for a module that is not ours.
    """
    rooms: set[Path] = set()
    files: set[Path] = set()
    left = [_file_of(module)]
    while left:
        file = left.pop()
        room = ROOT / file.relative_to(ROOT).parts[0]
        counted_whole = room.is_dir() and room.name != _MEASURING
        if file in files or room in rooms:
            continue
        new = _files(room) if counted_whole else [file]
        (rooms if counted_whole else files).add(room if counted_whole else file)
        left += [imported for path in new if path.suffix == ".py" for imported in _imported(path)]
    return sorted(files.union(*(_files(room) for room in rooms)))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _digest(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        found.update(f"{file.relative_to(ROOT).as_posix()} {content}\n".encode())
    return found.hexdigest()


def _file_of(module: str) -> Path:
    package, *parts = module.split(".")
    place = ROOT.joinpath(*parts)
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if package == ROOT.name and parts and file.is_file():
            return file
    raise ValueError(f"{module} is not a module of {ROOT.name}")


def _imported(file: Path) -> list[Path]:
    """Files of this package that a file imports by name, wherever in it the import stands."""
    package = (ROOT.name, *file.relative_to(ROOT).parent.parts)
    names = _imported_names(file.read_text(encoding="utf-8"), package)
    return [path for name in names if (path := _ours(name)) is not None]


@cache
def _imported_names(source: str, package: tuple[str, ...]) -> list[str]:
    """What the source of a module in `package` imports, or may, with its full name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def _ours(module: str) -> Path | None:
    try:
        return _file_of(module)
    except ValueError:
        return None


@cache
def _commit() -> str:
    try:
        commit = _git("rev-parse", "HEAD")
        # A repository around a virtual environment is not the repository of what is installed in it.
        _git("ls-files", "--error-unmatch", "__init__.py")
        return commit + (" (modified)" if _git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()
