"""Texts of files of any kind that is known, by the names of the files."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...errors import UserError
from ..lines import file_sha256, read_lines
from ..unpacking import Position
from .arrow import arrow_texts, parquet_texts
from .datasets import arrow_files
from .records import json_texts

FIELD = "text"
"""What the text is called in most datasets."""
_PACKED = {".gz", ".xz", ".zst"}
_RECORDS = {
    ".jsonl": json_texts,
    ".ndjson": json_texts,
    ".json": json_texts,
    ".parquet": parquet_texts,
    ".arrow": arrow_texts,
}


def has_records(path: Path) -> bool:
    """Whether a file holds texts as fields of records, and not lines of text."""
    return path.is_dir() or _kind(path) in _RECORDS


def texts_in(path: Path, field: str, position: Position | None = None) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text): of the records' field, or of the lines of a file of text.

    Raises UserError for what cannot be read, naming the file and the place.
    """
    if not path.is_dir():
        read = _RECORDS.get(_kind(path))
        yield from read(path, field, position) if read else read_lines(path, position=position)
        return
    rows = before = 0
    for file in arrow_files(path):
        inner = Position()
        for _, text in arrow_texts(file, field, inner):
            rows += 1
            if position is not None:
                position.file_bytes = before + inner.file_bytes
            yield rows, text
        before += file.stat().st_size
    if not rows:
        raise UserError(f"{path}: a dataset without rows; give one with text")


def source_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes; of a dataset's folder, over those of its files in their order."""
    if not path.is_dir():
        return file_sha256(path)
    digests = "".join(f"{file_sha256(file)}\n" for file in arrow_files(path))
    return hashlib.sha256(digests.encode()).hexdigest()


def source_bytes(paths: Iterable[Path]) -> int:
    """How long files and datasets are on the disk; what is missing counts nothing."""
    files = (file for path in paths for file in (arrow_files(path) if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def _kind(path: Path) -> str:
    """The last part of its name that is no packing: `.jsonl` of `texts.jsonl.gz`."""
    name = path.with_suffix("") if path.suffix in _PACKED else path
    return name.suffix
