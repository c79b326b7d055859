"""The origin of a number: hashes of the source, and the commit where there is a repository."""

import ast
import hashlib
import importlib.util
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from . import __version__

ROOT = Path(__file__).parent
"""Folder of the tool's package; a package that lies beside it is looked for there first."""


def provenance(*packages: str) -> dict[str, str]:
    """Returns the version, hash of the tool's source and of that of `packages`, and the commit they
    were checked out at.

    packages: others than the tool whose source counts too. `commit` is empty where the tool does
    not lie in a git repository that tracks it, or git is not there; it ends in " (modified)" where
    a file of these packages differs from that commit.
    """
    return {
        "normscope": __version__,
        "source_sha256": source_sha256(*packages),
        "commit": _commit(*packages),
    }


@cache
def source_sha256(*packages: str) -> str:
    """Returns the SHA-256 over every file of the tool and of `packages`: their Python files,
    templates and constants.
    """
    return _digest(file for root in (ROOT, *map(_folder, packages)) for file in _files(root))


@cache
def source_of(module: str) -> str:
    """Returns the SHA-256 over the source that a module's results depend on: its own and that of
    all it imports.

    module: such as "normscope_studies.lemmas.measure". Raises ValueError for a module whose file
    cannot be found.
    """
    return _digest(files_behind(module))


def files_behind(module: str) -> list[Path]:
    """Returns the files that `source_of` hashes: of the module's own package those that are
    imported, of the tool whole rooms.

    Placements are discovered, not imported by name, so a room of the tool counts as a whole; of a
    package of studies a file counts where it is imported, so that an edited page does not make its
    measurements old. Other packages do not count. Raises ValueError for a module whose file cannot
    be found.
    """
    packages = {ROOT.name, module.partition(".")[0]}
    rooms: set[Path] = set()
    files: set[Path] = set()
    left = [_file_of(module)]
    while left:
        file = left.pop()
        room = _room(file)
        if file in files or room in rooms:
            continue
        new = [file] if room is None else _files(room)
        files.update(new)
        if room is not None:
            rooms.add(room)
        left += [
            imported
            for path in new
            if path.suffix == ".py"
            for imported in _imported(path, packages)
        ]
    return sorted(files)


def _room(file: Path) -> Path | None:
    """Returns the folder of the tool that a file lies in; None at the tool's top, and outside the
    tool.
    """
    if not file.is_relative_to(ROOT):
        return None
    room = ROOT / file.relative_to(ROOT).parts[0]
    return room if room.is_dir() else None


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )


def _digest(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        found.update(f"{_name(file)} {content}\n".encode())
    return found.hexdigest()


def _name(file: Path) -> str:
    """Returns a file's name that is the same wherever its package lies: from the package's folder
    on.
    """
    package = file.parent
    while (package.parent / "__init__.py").is_file():
        package = package.parent
    return file.relative_to(
        package.parent if (package / "__init__.py").is_file() else package
    ).as_posix()


def _folder(package: str) -> Path:
    """Returns the folder of a package: beside the tool, or wherever Python finds it. Raises
    ValueError where there is none.
    """
    if (ROOT.parent / package / "__init__.py").is_file():
        return ROOT.parent / package
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{package} is no package that Python finds")
    return Path(spec.submodule_search_locations[0])


def _file_of(module: str) -> Path:
    package, *parts = module.split(".")
    if (
        not parts
        and (spec := importlib.util.find_spec(module)) is not None
        and not spec.submodule_search_locations
    ):
        return Path(str(spec.origin))
    place = _folder(package).joinpath(*parts)
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file() and (parts or package != ROOT.name):
            return file
    raise ValueError(f"{module} is not a module of {package}")


def _imported(file: Path, packages: set[str]) -> list[Path]:
    """Returns the files of these packages that a file imports by name, wherever in it the import
    stands.
    """
    package: list[str] = []
    folder = file.parent
    while (folder / "__init__.py").is_file():
        package.insert(0, folder.name)
        folder = folder.parent
    names = _imported_names(file.read_text(encoding="utf-8"), tuple(package))
    ours = [name for name in names if name.partition(".")[0] in packages]
    return [path for name in ours if (path := _found(name)) is not None]


@cache
def _imported_names(source: str, package: tuple[str, ...]) -> list[str]:
    """Returns the full names of what the source of a module in `package` imports, or may import."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def _found(module: str) -> Path | None:
    try:
        return _file_of(module)
    except ValueError:
        return None


@cache
def _commit(*packages: str) -> str:
    try:
        commit = _git("rev-parse", "HEAD")
        # A repository around a virtual environment is not the repository of what is installed in
        # it.
        _git("ls-files", "--error-unmatch", "__init__.py")
        changed = _git(
            "status", "--porcelain", ".", *(str(_folder(package)) for package in packages)
        )
        return commit + (" (modified)" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()
