"""A prepared folder: `corpus.json` with the SHA-256 of every file, and arrays of numbers in one file or several.

A long array lies in files of at most `MOST_SHARD_BYTES`, such as `train.00000.tokens`. Numbers are little-endian.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import UserError
from ..limits.ours import MARK, SealedJson, sealed_table
from .sources.lines import file_sha256

MANIFEST = "corpus.json"
OFFSET_DTYPE = np.dtype("<i8")
_AGAIN = "prepare the corpus again"


def token_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """uint16 where every id fits into it, int32 otherwise."""
    return np.dtype("<u2") if vocabulary_size < 65536 else np.dtype("<i4")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusManifest:
    """What `corpus.json` says of a folder whose files are as it says."""

    splits: tuple[str, ...]
    fingerprint: str
    files: frozenset[str]
    """Names of all others in the folder."""
    preparation: Mapping[str, Any]


def write_manifest(
    folder: Path, *, format_name: str, version: int, splits: Iterable[str], preparation: Mapping[str, Any]
) -> str:
    """Make a corpus of the folder in which everything else is written already; returns the fingerprint."""
    files = {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != MARK}
    noted = fingerprint(files)
    state = {"fingerprint": noted, "splits": list(splits), "preparation": dict(preparation), "files": files}
    text = _kind(format_name, version).text(state)
    (folder / MANIFEST).write_text(text, encoding="utf-8", newline="\n")
    return noted


def open_manifest(folder: Path, *, format_name: str, version: int, made_by: str) -> CorpusManifest:
    """Every file is read once and its SHA-256 compared. made_by: the command that makes such a folder.

    Raises UserError for a folder that is no corpus, or one that is incomplete, damaged, of another format or version.
    """
    try:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; prepare a corpus there first")
        if not (folder / MANIFEST).is_file():
            raise UserError(f"{folder}: not a corpus (no {MANIFEST} in it); prepare one, or check the path")
    except PermissionError as error:
        raise UserError(f"{folder}: no permission to look into this folder; change its mode") from error
    manifest = _kind(format_name, version, made_by).read(folder / MANIFEST)
    try:
        files, names = dict(manifest["files"]), tuple(manifest["splits"])
        noted, preparation = str(manifest["fingerprint"]), dict(manifest["preparation"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / MANIFEST}: damaged ({error!r}); {_AGAIN}") from error
    for name, digest in files.items():
        if file_sha256(folder / name) != digest:
            raise UserError(f"{folder / name}: damaged (its SHA-256 has changed); prepare the corpus again")
    if fingerprint(files) != noted:
        raise UserError(f"{folder / MANIFEST}: damaged (the fingerprint does not fit the files); prepare it again")
    return CorpusManifest(splits=names, fingerprint=noted, files=frozenset(files), preparation=preparation)


def _kind(format_name: str, version: int, made_by: str = "") -> SealedJson:
    keys = frozenset({"fingerprint", "splits", "preparation", "files"})
    return SealedJson(format_name=format_name, version=version, keys=keys, made_by=made_by, again=_AGAIN)


def listed_files(folder: Path) -> Mapping[str, str]:
    """SHA-256 of every file that a corpus' manifest lists, of whatever kind it is; nothing where the folder is none."""
    table = sealed_table(folder / MANIFEST)
    files = table.get("files")
    if not str(table.get("format")).startswith("normscope-") or not isinstance(files, dict):
        return {}
    return {str(name): str(digest) for name, digest in files.items()} | {MANIFEST: ""}


def fingerprint(digests: Mapping[str, str]) -> str:
    """From file name -> SHA-256; files that training does not read (raw text, descriptions) have no part in it."""
    trained_on = (".tokens", ".offsets", "tokenizer.json")
    lines = sorted(f"{name} {digest}\n" for name, digest in digests.items() if name.endswith(trained_on))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def mapped(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """A file of numbers, mapped into memory. Raises UserError where it is missing or cannot be."""
    try:
        return np.memmap(path, dtype=dtype, mode="r")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: missing or damaged ({error}); prepare the corpus again") from error


def array_digest(array: NDArray[Any], dtype: DTypeLike) -> str:
    """SHA-256 of an array as it is stored on the disk."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype=dtype).data).hexdigest()


MOST_SHARD_BYTES = 2**29
"""Of one file: it can be copied, hashed and stored anywhere."""


class ShardWriter:
    """Writes one array, piece by piece; memory holds a piece."""

    def __init__(self, folder: Path, name: str, dtype: DTypeLike) -> None:
        """name: that of an array in one file, such as `train.tokens`."""
        self._folder, self._name = folder, name
        self._dtype = np.dtype(dtype)
        self._room = self._most = max(1, MOST_SHARD_BYTES // self._dtype.itemsize)
        self._shards = 0
        self._stream = (folder / name).open("wb")
        self.written = 0
        """Numbers so far."""

    def __enter__(self) -> Self:
        return self

    def append(self, numbers: NDArray[Any] | Sequence[int]) -> None:
        """Add numbers to the end."""
        array = np.ascontiguousarray(numbers, dtype=self._dtype)
        self.written += len(array)
        while len(array) > self._room:
            fits, array = array[: self._room], array[self._room :]
            self._write(fits)
            self._next_shard()
        self._write(array)

    def _write(self, array: NDArray[Any]) -> None:
        # Through `write`, not `tofile`: the latter loses the error number that tells a full disk.
        self._stream.write(array.data)
        self._room -= len(array)

    def _next_shard(self) -> None:
        self._stream.close()
        if not self._shards:
            (self._folder / self._name).rename(self._folder / _shard(self._name, 0))
        self._shards += 1
        self._stream = (self._folder / _shard(self._name, self._shards)).open("wb")
        self._room = self._most

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


class Shards:
    """Files of numbers, mapped into memory, as one array that is never in memory as a whole."""

    def __init__(self, shards: Sequence[NDArray[Any]]) -> None:
        """Raises ValueError for none, or for different types of numbers."""
        if not shards or len({shard.dtype for shard in shards}) != 1:
            raise ValueError(f"need files of one type of numbers, got {[str(shard.dtype) for shard in shards]}")
        self._shards = list(shards)
        self._begins = [0, *accumulate(map(len, shards))]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._shards[0].dtype

    def __len__(self) -> int:
        return self._begins[-1]

    @overload
    def __getitem__(self, places: slice) -> NDArray[Any]: ...

    @overload
    def __getitem__(self, places: int) -> Any: ...

    def __getitem__(self, places: slice | int) -> Any:
        """A number, or a copy of a stretch. Raises IndexError outside, ValueError for steps other than 1."""
        if not isinstance(places, slice):
            place = range(len(self))[places]
            shard = int(np.searchsorted(self._begins, place, side="right")) - 1
            return self._shards[shard][place - self._begins[shard]]
        begin, end, step = places.indices(len(self))
        if step != 1:
            raise ValueError(f"stretches have a step of 1, got {step}")
        parts = [
            shard[max(begin - at, 0) : end - at]
            for shard, at, until in zip(self._shards, self._begins, self._begins[1:], strict=False)
            if at < end and begin < until
        ]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it in memory: NumPy calls this where an array is needed."""
        return np.asarray(self[:], dtype=dtype)

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """All of it in memory, as other numbers."""
        return self[:].astype(dtype)

    def tolist(self) -> list[Any]:
        """All of it as Python's numbers."""
        return list(self[:].tolist())


StoredNumbers = NDArray[Any] | Shards
"""An array in memory, in one file or in several."""


def mapped_numbers(folder: Path, name: str, dtype: DTypeLike, files: Collection[str]) -> StoredNumbers:
    """The array of that name. files: names of all that the folder holds. Raises UserError for one that is missing."""
    if name in files or _shard(name, 0) not in files:
        return mapped(folder / name, dtype)
    several = [_shard(name, number) for number in range(len(files)) if _shard(name, number) in files]
    return Shards([mapped(folder / one, dtype) for one in several])


def _shard(name: str, number: int) -> str:
    stem, _, kind = name.rpartition(".")
    return f"{stem}.{number:05d}.{kind}"
