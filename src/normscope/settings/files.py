"""Files that a user brings: a folder is a run by its `config.toml`, and Python files hold
placements or a model.

A Python file runs on the user's word alone: a command that names it, or the configuration to train.
What a run folder names is code of whoever made the folder.
"""

import hashlib
import importlib.util
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UserError, error_line
from ..files import disk_errors
from ..limits.home import from_home
from .behind import imported_behind
from .tables import flat, put, read_overrides, read_toml

CONFIG_FILE = "config.toml"


def is_run(folder: Path) -> bool:
    """Tells whether `folder` is a run folder. Raises UserError where the disk does not say."""
    with disk_errors(f"reading {folder}"):
        return (folder / CONFIG_FILE).is_file()


def refuse_no_run(folder: Path) -> None:
    """Raise UserError where `folder` is no run folder."""
    if not is_run(folder):
        raise UserError(f"{folder} is not a run folder: it has no {CONFIG_FILE}")


_RAN: dict[Path, str] = {}
"""The users' files that have run in this process, each with the SHA-256 of what has."""
_SAID: set[Path] = set()
"""The files that the user has named, whatever they hold."""
_MODULE = "normscope_user_"
_MARK = "@sha256:"
_FACTORY = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A Python file as `imports` of a configuration names it: `gated.py`, or `gated.py@sha256:…`
    where a run has it.
    """

    path: Path
    sha256: str = ""
    """The SHA-256 of its content when the run began, and of the user's files that it imports; empty
    where the configuration does not say.
    """

    @classmethod
    def of(cls, text: str) -> "OwnFile":
        path, mark, digest = text.rpartition(_MARK)
        return cls(_resolved(Path(path)), digest) if mark else cls(_resolved(Path(text)))

    def __str__(self) -> str:
        return f"{self.path}{_MARK}{self.sha256}" if self.sha256 else str(self.path)

    @property
    def has_run(self) -> bool:
        """True where this process has run it: with the content that the configuration knows, even
        from elsewhere, or on the user's word.
        """
        return self.sha256 in _RAN.values() or self.path in (_SAID if self.sha256 else _RAN)

    @property
    def module(self) -> ModuleType:
        """The module that running it has made. Raises KeyError where it has not run."""
        return sys.modules[self._name]

    @property
    def _name(self) -> str:
        # The whole path, so that two files of one name stay two modules, and a placement both claim
        # is refused.
        own = f"{_MODULE}{zlib.crc32(bytes(self.path)):08x}_{self.path.stem}"
        package, _ = self._package
        return f"{package}.{own}" if package else own

    @property
    def _package(self) -> tuple[str, Path]:
        """The package that it lies in, by which its relative imports are found, and the folder
        around that; "" where no `__init__.py` stands beside it, and where another package that is
        installed has the name.
        """
        names: list[str] = []
        folder = self.path.parent
        while (folder / "__init__.py").is_file() and folder.name.isidentifier():
            names.insert(0, folder.name)
            folder = folder.parent
        if not names or not _is_free(names[0], folder):
            return "", folder
        return ".".join(names), folder

    def pinned(self) -> "OwnFile":
        """Returns the file with the SHA-256 of what has run, or else of what is there. Raises
        UserError where nothing is.
        """
        if self.sha256:
            return self
        return OwnFile(self.path, _RAN.get(self.path) or _sha256_of(self.path, _content(self.path)))

    def run(self) -> None:
        """Run it, so that it registers its placements; once a process. Raises UserError, also for
        another content.
        """
        if self.has_run:
            return
        content = _content(self.path)
        digest = _sha256_of(self.path, content)
        if self.sha256 and digest != self.sha256:
            raise UserError(
                f"{self.path}{_or_imported(self.path)} is not as it was when the run began "
                f"(SHA-256 {self.sha256[:12]} then, {digest[:12]} now), and was not run; put "
                "it back, or name it with --import to run it as it is"
            )
        name = self._name
        spec = importlib.util.spec_from_file_location(name, self.path)
        if spec is None:
            raise UserError(
                f"cannot import {self.path}: not a Python file (its name must end in .py)"
            )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        # Behind all others: modules beside the file are found, and stand for no installed one.
        package, around = self._package
        for folder in (self.path.parent, around) if package else (self.path.parent,):
            if str(folder) not in sys.path:
                sys.path.append(str(folder))
        try:
            # What was hashed, and not what a cache beside the file says that it compiles to.
            exec(compile(content, self.path, "exec", dont_inherit=True), module.__dict__)
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, Exception | SystemExit):
                said = error_line(error)
                if isinstance(error, ImportError) and "relative import" in str(error):
                    said += (
                        "; its relative imports are found where an __init__.py makes its folder a "
                        "package: add one, or import as `from layers import …` what lies beside it"
                    )
                raise UserError(f"cannot import {self.path}: {said}") from error
            raise
        _RAN[self.path] = digest


def import_file(path: Path) -> None:
    """Run a user's Python file, whatever it holds, so that it registers its placements. Raises
    UserError.

    One that was edited since this process ran it runs again.
    """
    file = OwnFile(_resolved(path))
    if file.path in _RAN and (
        _RAN[file.path] != _sha256_of(file.path, _content(file.path))
        or file._name not in sys.modules
    ):
        del _RAN[file.path]
        _forget(imported_behind(file.path, _content(file.path)))
    file.run()
    _SAID.add(file.path)


def is_said(module: str) -> bool:
    """Tells whether the user has named the file of a module, or imported the module in Python."""
    return _MODULE not in module or Path(str(sys.modules[module].__file__)) in _SAID


def named_files(table: Mapping[str, Any], *, source: str) -> list[OwnFile]:
    """Returns the files that a configuration names under `imports` and as `model.factory`, none of
    which is run.

    Raises UserError.
    """
    files = table.get("imports", [])
    if not isinstance(files, list | tuple) or not all(isinstance(file, str) for file in files):
        raise UserError(f"{source}: imports: give a list of Python files, got {files!r}")
    model = table.get("model")
    factory = model.get("factory") if isinstance(model, Mapping) else None
    return with_factory(
        [OwnFile.of(file) for file in files], factory if isinstance(factory, str) else ""
    )


def _is_free(package: str, around: Path) -> bool:
    """Tells whether a name is that of the package in a folder, or of none that can be imported."""
    loaded = sys.modules.get(package)
    if loaded is None:
        try:
            found = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            return False
        origin = None if found is None else found.origin
        free = found is None
    else:
        origin, free = getattr(loaded, "__file__", None), False
    return free or (origin is not None and Path(origin).resolve().parent == around / package)


def with_factory(files: Iterable[OwnFile], factory: str) -> list[OwnFile]:
    """Returns the files, and the one that a factory is in where it is none of them."""
    found, named = list(files), factory_in(factory)
    if named is not None:
        own = OwnFile(_resolved(named[0]))
        if own.path not in [file.path for file in found]:
            found.append(own)
    return found


def factory_in(text: str) -> tuple[Path, str] | None:
    """Returns the file and the function of `my_model.py:build`; None for what is written
    otherwise.
    """
    found = _FACTORY.fullmatch(text)
    return (from_home(found[1]), found[2]) if found else None


def run_named(table: Mapping[str, Any], *, source: str) -> None:
    """Run the files that a configuration names, on the user's word. Raises UserError."""
    for file in named_files(table, source=source):
        file.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConfig:
    """A configuration as its user gave it, read once and not yet validated."""

    source: str
    """The source of the configuration, for messages."""
    table: Mapping[str, Any]
    places: Mapping[str, str]
    """The source of each dotted key that is not left to its default."""


def given_config(
    path: Path | None, overrides: Iterable[str] = (), imports: Iterable[str | Path] = ()
) -> GivenConfig:
    """Returns a TOML file (None for all defaults) changed by `a.b=value` overrides. Raises
    UserError naming file and key.

    path: or `my_model.py:build`, whose file is run. imports: Python files to run first, beside
    those that the TOML file names, which are not run here.
    """
    source, factory = str(path) if path else "configuration", factory_in(str(path))
    if factory is not None:
        import_file(factory[0])
    table = read_toml(path) if factory is None else {"task": "own", "model": {"factory": source}}
    places = dict.fromkeys(flat(table), str(path))
    for key, value in read_overrides(overrides).items():
        put(table, key, value)
        # An override may set a whole section: optimizer={peak_lr=1e-3}.
        places |= dict.fromkeys(flat({key: value}), "--set")
    if given := [OwnFile.of(str(file)) for file in imports]:
        for file in given:
            import_file(file.path)
        again = {file.path for file in given}
        kept = [str(file) for file in named_files(table, source=source) if file.path not in again]
        table["imports"] = [*kept, *map(str, imports)]
    return GivenConfig(source=source, table=table, places=places)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError) as error:  # a name too long for a file, or with a NUL in it
        raise UserError(f"cannot import {path}: {error}") from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"cannot import {path}: no such file; give the path of a Python file"
        ) from None
    except OSError as error:
        raise UserError(f"cannot import {path}: {error.strerror}") from error


def _sha256_of(path: Path, content: bytes) -> str:
    """Returns the SHA-256 of a file's content; where it imports other files of the user's, that of
    all of them together.
    """
    whole = hashlib.sha256(content)
    for file in imported_behind(path, content):
        whole.update(f"{file.name} {hashlib.sha256(_content(file)).hexdigest()}\n".encode())
    return whole.hexdigest()


def _or_imported(path: Path) -> str:
    """Returns the other files that may have been edited, in words."""
    behind = [file.name for file in imported_behind(path, _content(path))]
    return f", or what it imports ({', '.join(behind[:5])})" if behind else ""


def _forget(files: Iterable[Path]) -> None:
    """Has these files run again when they are imported next."""
    known = {str(file) for file in files}
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) in known:
            del sys.modules[name]
