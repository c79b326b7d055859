"""A prepared folder: `corpus.json` with the SHA-256 of every file, and arrays of little-endian
numbers, a file each.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import UserError
from ..limits.names import inside, plain, refuse_leading_out
from ..limits.ours import MARK, SealedJson, sealed_table
from .lines import file_sha256

MANIFEST = "corpus.json"
OFFSET_DTYPE = np.dtype("<i8")
_READ = (".json", ".tokens", ".offsets", ".txt")
"""The endings of all files that a corpus is read from, listed or not."""
_AGAIN = "prepare the corpus again"


def token_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """uint16 where every id fits into it, int32 otherwise."""
    return np.dtype("<u2") if vocabulary_size < 65536 else np.dtype("<i4")


def write_manifest(
    folder: Path,
    *,
    format_name: str,
    version: int,
    splits: Iterable[str],
    preparation: Mapping[str, Any],
) -> str:
    """Make a corpus of the folder in which everything else is written already; returns the
    fingerprint.
    """
    files = {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != MARK}
    noted = fingerprint(files)
    state = {
        "fingerprint": noted,
        "splits": list(splits),
        "preparation": dict(preparation),
        "files": files,
    }
    text = _kind(format_name, version).text(state)
    (folder / MANIFEST).write_text(text, encoding="utf-8", newline="\n")
    return noted


def open_manifest(
    folder: Path, *, format_name: str, version: int, made_by: str
) -> tuple[list[str], str, dict[str, Any]]:
    """Reads `corpus.json` of a folder and checks that the files are as it says: returns splits,
    fingerprint and how the corpus was made.

    Every file is read once and its SHA-256 compared. made_by: the command that makes such a folder.

    Raises UserError for a folder that is no corpus, or one that is incomplete, damaged, of another
    format or version, and before anything is read where a name in it is a path.
    """
    try:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; prepare a corpus there first")
        if not (folder / MANIFEST).is_file():
            raise UserError(
                f"{folder}: not a corpus (no {MANIFEST} in it); prepare one, or check the path"
            )
    except PermissionError as error:
        raise UserError(
            f"{folder}: no permission to look into this folder; change its mode"
        ) from error
    manifest = _kind(format_name, version, made_by).read(folder / MANIFEST)
    try:
        files, names = dict(manifest["files"]), list(manifest["splits"])
        noted, preparation = str(manifest["fingerprint"]), dict(manifest["preparation"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / MANIFEST}: damaged ({error!r}); {_AGAIN}") from error
    names = [plain(name, folder / MANIFEST) for name in names]
    for file in sorted(folder.iterdir()):
        if file.suffix in _READ:
            refuse_leading_out(file)
    found = {name: inside(folder, name, folder / MANIFEST) for name in files}
    for name, digest in files.items():
        if file_sha256(found[name]) != digest:
            raise UserError(
                f"{found[name]}: damaged (its SHA-256 has changed); prepare the corpus again"
            )
    if fingerprint(files) != noted:
        raise UserError(
            f"{folder / MANIFEST}: damaged (the fingerprint does not fit the files); prepare it "
            "again"
        )
    return names, noted, preparation


def _kind(format_name: str, version: int, made_by: str = "") -> SealedJson:
    keys = frozenset({"fingerprint", "splits", "preparation", "files"})
    return SealedJson(
        format_name=format_name, version=version, keys=keys, made_by=made_by, again=_AGAIN
    )


def listed_files(folder: Path) -> Mapping[str, str]:
    """Returns the SHA-256 of every file that a corpus' manifest lists, of whatever kind it is;
    nothing where the folder is none.

    Raises UserError where it lists what is no file of the folder.
    """
    table = sealed_table(folder / MANIFEST)
    files = table.get("files")
    if not str(table.get("format")).startswith("normscope-") or not isinstance(files, dict):
        return {}
    for name in files:
        inside(folder, name, folder / MANIFEST)
    return {name: str(digest) for name, digest in files.items()} | {MANIFEST: ""}


def fingerprint(digests: Mapping[str, str]) -> str:
    """Returns the fingerprint of digests by file name; files that training does not read (raw text,
    descriptions) have no part in it.
    """
    trained_on = (".tokens", ".offsets", "tokenizer.json")
    lines = sorted(
        f"{name} {digest}\n" for name, digest in digests.items() if name.endswith(trained_on)
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def mapped(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """Returns a file of numbers, mapped into memory. Raises UserError where it is missing or cannot
    be.
    """
    try:
        return np.memmap(path, dtype=dtype, mode="r")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: missing or damaged ({error}); prepare the corpus again"
        ) from error


def array_digest(array: NDArray[Any], dtype: DTypeLike) -> str:
    """Returns the SHA-256 of an array as it is stored on the disk."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype=dtype).data).hexdigest()


def append_numbers(file: BinaryIO, numbers: NDArray[Any] | Sequence[int], dtype: DTypeLike) -> None:
    """Write numbers behind those of an array's file."""
    # Through `write`, not `tofile`: the latter loses the error number that tells a full disk.
    file.write(np.ascontiguousarray(numbers, dtype=dtype).data)


class TokenWriter(ExitStack):
    """Writes sentences end to end as `NAME.tokens`, and where each begins, and the end; memory
    holds a part of them.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        vocabulary_size: int,
        *,
        offsets: str = "offsets",
        raw: bool = False,
    ) -> None:
        """offsets: what that file is called behind the name. raw: whether parts have text too, for
        `NAME.txt`.
        """
        super().__init__()
        self._dtype = token_dtype(vocabulary_size)
        self._tokens, self._offsets, *self._raw = (
            self.enter_context((folder / f"{name}.{kind}").open("wb"))
            for kind in ("tokens", offsets, *(["txt"] if raw else []))
        )
        append_numbers(self._offsets, [0], OFFSET_DTYPE)
        self.tokens = self.sentences = 0
        """The counts so far."""

    def append(self, found: Mapping[str, NDArray[Any]]) -> None:
        """Add what a part holds: `tokens`, their `lengths` by sentences, and where there is text,
        its bytes, `raw`.
        """
        append_numbers(self._offsets, self.tokens + np.cumsum(found["lengths"]), OFFSET_DTYPE)
        append_numbers(self._tokens, found["tokens"], self._dtype)
        for file in self._raw:
            file.write(found["raw"].tobytes())
        self.tokens += len(found["tokens"])
        self.sentences += len(found["lengths"])
