"""The storage of finished cells on machines without a shared folder: a folder that fsspec reaches.

`cells/PLACE/` in it holds the files of a cell's folder as they are, and `seals/PLACE.json` the
SHA-256 of each, which is written last. What is read back is held to it. The place of a cell is the
path of its folder, as the command was given it.
"""

import contextlib
import hashlib
import posixpath
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import UserError, in_one_line, installation
from ..files import disk_errors, is_unfinished, make_folders, whole_file
from ..limits.names import is_plain, refuse_leading_out
from ..limits.ours import SealedJson
from ..processes.surroundings import LOCK
from .seam import Job

_PIECE_BYTES = 1 << 20
_CELLS = "cells"
_SEALS = "seals"
_SEAL_ENDING = ".json"
_AGAIN = "remove it there and give the same command again, which repeats this run"
_SEAL = SealedJson(
    format_name="normscope-stored-cell",
    version=1,
    keys=frozenset({"files", "done"}),
    again=_AGAIN,
)
_LAST = "metrics.jsonl"
"""The file that shows that a run is finished, and so is brought back after everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCell:
    """The stored files of a cell."""

    place: str
    files: Mapping[str, str]
    """SHA-256 by path in the cell's folder."""
    done: Sequence[str]
    """Jobs that have ended well on it, by `job_key`."""


def place_of(job: Job) -> str:
    """Returns the path of a job's cell in a storage.

    >>> place_of(Job(folder=Path("/data/grid/runs/one"), name="one", words=[], configuration="",
    ...     directory=Path("."), log=Path("log"), threads=1))
    'data/grid/runs/one'
    """
    return "/".join(part for part in job.folder.parts if part not in ("/", ".", ".."))


def moved(job: Job, folder: Path) -> list[str]:
    """Returns the words of a job for another folder of its cell."""
    before = str(job.folder)
    words = []
    for word in job.words:
        if word == before or word.startswith(f"{before}/"):
            word = f"{folder}{word[len(before) :]}"
        words.append(word)
    return words


def job_key(job: Job) -> str:
    """Returns what tells the jobs of a cell apart: a SHA-256 of command and configuration, wherever
    the folder lies.
    """
    words = moved(job, Path("FOLDER"))
    return hashlib.sha256("\0".join([*words, job.configuration]).encode()).hexdigest()


class CellStorage:
    """A folder that fsspec reaches, with finished cells in it."""

    def __init__(self, url: str) -> None:
        """Opens the storage at a URL. Raises UserError where fsspec knows no such place."""
        self.url = url.rstrip("/")
        try:
            import fsspec
        except ImportError:
            raise UserError(f"storage {url!r} needs fsspec: {installation('ray')}") from None
        with storage_errors(url):
            system, root = fsspec.url_to_fs(self.url)
        self._system: Any = system
        self._root: str = root

    def places(self) -> set[str]:
        """Returns the places of all cells that are kept."""
        above = self._path(_SEALS)
        with storage_errors(self.url):
            self._system.invalidate_cache()
            found = self._system.find(above)
        return {
            path[len(above) + 1 : -len(_SEAL_ENDING)]
            for path in found
            if path.endswith(_SEAL_ENDING)
        }

    def stored(self, place: str) -> StoredCell | None:
        """Returns what is kept of a cell; None where that is nothing. Raises UserError where its
        seal is damaged, or lists a file elsewhere.
        """
        called = f"{self.url}/{_SEALS}/{place}{_SEAL_ENDING}"
        with TemporaryDirectory() as folder:
            here = Path(folder) / "seal"
            try:
                with storage_errors(self.url), here.open("wb") as target:
                    self._copy(self._path(_SEALS, place + _SEAL_ENDING), target)
            except FileNotFoundError:
                return None
            try:
                state = _SEAL.read(here)
            except UserError as error:
                raise UserError(str(error).replace(str(here), called)) from None
        for path in state["files"]:
            if not all(is_plain(part) for part in path.split("/")):
                raise UserError(
                    f"{called} lists {path!r}, which is no file of a cell; nothing was read; "
                    f"{_AGAIN}"
                )
        return StoredCell(place=place, files=state["files"], done=state["done"])

    def fetch(self, cell: StoredCell, folder: Path) -> None:
        """Brings the files of a cell into a folder that does not have them. Raises UserError where
        one is not as it was when it was sealed, and leaves what stood in its place.
        """
        for path in sorted(cell.files, key=lambda path: path == _LAST):
            file, digest = folder / path, cell.files[path]
            if file.is_file() and _sha256(file) == digest:
                continue
            for above in (file, *file.relative_to(folder).parents):
                refuse_leading_out(folder / above)
            with disk_errors(f"writing into {folder}"):
                make_folders(file.parent)
                self._bring(cell.place, path, file, digest)

    def keep(self, place: str, folder: Path, done: str, former: StoredCell | None) -> None:
        """Copies a cell's folder, and seals it when all is there. Raises UserError.

        done: the job that has ended well on it. former: what was kept before. Files that are there
        already are not sent again; where one of them is to change, there is no seal meanwhile.
        """
        before = {} if former is None else dict(former.files)
        files = {path: _sha256(folder / path) for path in _finished_files(folder)}
        gone = before.keys() - files.keys()
        changed = [path for path in files if before.get(path) != files[path]]
        with storage_errors(self.url):
            if gone or before.keys() & set(changed):
                self._system.rm_file(self._path(_SEALS, place + _SEAL_ENDING))
            for path in changed:
                self._put(folder / path, self._path(_CELLS, place, path))
            for path in gone:
                self._system.rm_file(self._path(_CELLS, place, path))
            kept = [done] if former is None else [*former.done, done]
            text = _SEAL.text({"files": files, "done": kept})
            self._write(text.encode(), self._path(_SEALS, place + _SEAL_ENDING))

    def write_token(self, token: str) -> None:
        """Writes an empty file, for whoever looks whether this is the same place."""
        with storage_errors(self.url):
            self._write(b"", self._path(token))

    def take_token(self, token: str) -> bool:
        """Tells whether that file is there, and removes it."""
        with storage_errors(self.url):
            self._system.invalidate_cache()
            try:
                self._system.rm_file(self._path(token))
            except FileNotFoundError:
                return False
        return True

    def _path(self, *parts: str) -> str:
        return posixpath.join(self._root, *parts)

    def _bring(self, place: str, path: str, file: Path, digest: str) -> None:
        try:
            with whole_file(file) as target, storage_errors(self.url):
                if self._copy(self._path(_CELLS, place, path), target) == digest:
                    return
                raise FileNotFoundError
        except FileNotFoundError:
            raise UserError(
                f"{self.url}/{_CELLS}/{place}/{path} is damaged or missing (its SHA-256 is not the "
                f"one in {_SEALS}/{place}{_SEAL_ENDING}); {_AGAIN}"
            ) from None

    def _copy(self, there: str, target: Any) -> str:
        """Copies what lies there; returns its SHA-256. Raises FileNotFoundError."""
        digest = hashlib.sha256()
        with self._system.open(there, "rb") as source:
            while piece := source.read(_PIECE_BYTES):
                digest.update(piece)
                target.write(piece)
        return digest.hexdigest()

    def _put(self, here: Path, there: str) -> None:
        self._system.makedirs(posixpath.dirname(there), exist_ok=True)
        with here.open("rb") as source, self._system.open(there, "wb") as target:
            shutil.copyfileobj(source, target, _PIECE_BYTES)

    def _write(self, content: bytes, there: str) -> None:
        self._system.makedirs(posixpath.dirname(there), exist_ok=True)
        # An object is there whole or not at all; a file is where it is asked for so.
        with self._system.transaction, self._system.open(there, "wb") as target:
            target.write(content)


@contextlib.contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """A context in which what a storage answers becomes a UserError; FileNotFoundError stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except ImportError as error:
        raise UserError(
            f"storage {url!r} needs another package, on every machine: {in_one_line(error)}"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"storage {url!r} cannot be used: {in_one_line(error)}; give --engine-set storage=URL "
            "of a folder that fsspec reaches, such as s3://bucket/grids"
        ) from error


def _finished_files(folder: Path) -> Iterator[str]:
    """Paths of a cell's files, but for its lock and what a killed process left."""
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder)
        left = any(is_unfinished(folder / part) for part in (path, *path.parents))
        if file.is_file() and not file.is_symlink() and file.name != LOCK and not left:
            yield path.as_posix()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
