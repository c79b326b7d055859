"""Texts of files of any kind that is known: lines, JSON lines, Parquet, and folders that `datasets`
saved.

Columns are read with pyarrow, a few rows at a time.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from ..limits.reading import parse_json, read_json, shown
from .lines import file_sha256, opened_pyarrow, read_lines

_ROWS_AT_ONCE = 256


def parquet_texts(path: Path, field: str, told: Callable[[int], None]) -> Iterator[tuple[int, str]]:
    """Yield (row from 1, text) of one column; a null is a text without characters.

    field: name of the column, or `column.part` inside a column of structures. told: as `read_lines`
    takes it. Raises UserError for another file, and for a field that is not there or holds no text.
    """
    arrow = opened_pyarrow(path)
    from pyarrow import parquet

    with _refused_where_damaged(path, "Parquet"):
        # Pages are read as they are needed: a group of rows may be as long as the file.
        file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
        schema, rows = file.schema_arrow, max(file.metadata.num_rows, 1)
        _check_field(path, schema, field, arrow)  # names of columns may be no UTF-8
        batches = file.iter_batches(_ROWS_AT_ONCE, columns=[field], use_threads=False)
    size = path.stat().st_size
    yield from _texts(
        path, batches, field, "Parquet", lambda number: told(min(size, size * number // rows))
    )


def arrow_texts(path: Path, field: str, told: Callable[[int], None]) -> Iterator[tuple[int, str]]:
    """Yields the texts of an Arrow file, in the stream or the file format, as `parquet_texts`
    does.
    """
    arrow = opened_pyarrow(path)
    with _refused_where_damaged(path, "Arrow"):
        source = arrow.memory_map(str(path))
        try:
            reader = arrow.ipc.open_stream(source)
        except arrow.ArrowInvalid:
            source.seek(0)
            file = arrow.ipc.open_file(source)
            reader = (file.get_batch(number) for number in range(file.num_record_batches))
            schema = file.schema
        else:
            schema = reader.schema
        _check_field(path, schema, field, arrow)
    yield from _texts(path, iter(reader), field, "Arrow", lambda number: told(source.tell()))


def _texts(
    path: Path, batches: Iterator[Any], field: str, kind: str, told: Callable[[int], None]
) -> Iterator[tuple[int, str]]:
    """told: called with the number of the last row of each batch."""
    number = 0
    while True:
        with _refused_where_damaged(path, kind):
            batch: Any = next(batches, None)
            if batch is None:
                break
            # Offsets that a stranger wrote may point anywhere; only then does reading a value do so
            # too.
            batch.validate(full=True)
            texts = _column(batch, field).to_pylist()
        for text in texts:
            number += 1
            yield number, text or ""
        told(number)


def parquet_rows(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Returns the names of the columns, and each row's number from 1 with its values as text.

    A null is a text without characters; columns of lists or structures are left out. Raises
    UserError for another file, and for a damaged one as it is read.
    """
    arrow = opened_pyarrow(path)
    from pyarrow import parquet

    with _refused_where_damaged(path, "Parquet"):
        file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
        names = [str(name) for name in file.schema_arrow.names]
        nested = [column.name for column in file.schema_arrow if arrow.types.is_nested(column.type)]
        plain = [name for name in names if name not in nested]
        batches = file.iter_batches(_ROWS_AT_ONCE, columns=plain, use_threads=False)
    return plain, _value_rows(path, batches, plain)


def _value_rows(
    path: Path, batches: Iterator[Any], names: Collection[str]
) -> Iterator[tuple[int, list[str]]]:
    number = 0
    while True:
        with _refused_where_damaged(path, "Parquet"):
            batch: Any = next(batches, None)
            if batch is None:
                return
            batch.validate(full=True)  # as of `_texts`
            columns = [batch.column(name).to_pylist() for name in names]
        for values in zip(*columns, strict=True):
            number += 1
            yield number, ["" if value is None else str(value) for value in values]


def _column(batch: Any, field: str) -> Any:
    from pyarrow import compute

    name, *inner = _keys(batch.schema.names, field)
    return compute.struct_field(batch.column(name), inner) if inner else batch.column(name)


def _keys(names: Collection[str], field: str) -> list[str]:
    """Returns a field by the names of columns or keys within one another; a name may have dots
    itself.
    """
    return [field] if field in names else field.split(".")


def _check_field(path: Path, schema: Any, field: str, arrow: Any) -> None:
    found = _type_of(schema, field, arrow)
    names = [
        f"{column.name}.{inner.name}" if inner is not None else column.name
        for column in schema
        for inner in (list(column.type) if arrow.types.is_struct(column.type) else [None])
    ]
    if found is None:
        raise UserError(
            f"{path}: no field {field!r} in it; it has {', '.join(names) or 'none'}; name the "
            "field of the text"
        )
    if arrow.types.is_dictionary(found):
        found = found.value_type
    if not (
        arrow.types.is_string(found)
        or arrow.types.is_large_string(found)
        or arrow.types.is_string_view(found)
    ):
        raise UserError(
            f"{path}: the field {field!r} holds {found}, not text; name the field of the text"
        )


def _type_of(schema: Any, field: str, arrow: Any) -> Any:
    name, *inner = _keys(schema.names, field)
    found: Any = schema.field(name).type if name in schema.names else None
    for part in inner:
        if found is None or not arrow.types.is_struct(found) or found.get_field_index(part) < 0:
            return None
        found = found.field(part).type
    return found


@contextmanager
def _refused_where_damaged(path: Path, kind: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; check the path") from error
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        said = str(error).partition("\n")[0][:200]
        raise UserError(
            f"{path}: no {kind} file, or a damaged one ({said}); fetch or write it again"
        ) from error


MOST_RECORD_BYTES = 2**24
"""The largest size of one line: the longest books have a few million characters."""


def json_texts(path: Path, field: str, told: Callable[[int], None]) -> Iterator[tuple[int, str]]:
    """Yield (line from 1, text) of one field, blank lines apart; a null is a text without
    characters.

    field: the key, or `key.inner` inside an object. Raises UserError, with the line, for what is no
    object, a field that is not there or is no text, and all that `read_lines` refuses.
    """
    for number, line in read_lines(
        path, max_line_bytes=MOST_RECORD_BYTES, holds="JSON object", told=told
    ):
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except ValueError as error:
            raise UserError(
                f"{path}:{number}: not JSON ({error}); give JSON lines, an object with a field "
                f"{field!r} on each"
            ) from error
        if not isinstance(record, Mapping):
            raise UserError(
                f"{path}:{number}: {shown(record)} is no object; give one with a field {field!r} "
                "on each line"
            )
        text = _found(record, field)
        if text is not None and not isinstance(text, str):
            has = ", ".join(_names(record)) or "none"
            what = "no such field" if text is _ABSENT else f"{shown(text)}, not text"
            raise UserError(
                f"{path}:{number}: {field!r} is {what}; it has {has}; name the field of the text"
            )
        yield number, text or ""


_ABSENT = object()


def _found(record: Mapping[str, Any], field: str) -> Any:
    value: Any = record
    for part in _keys(record, field):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def _names(record: Mapping[str, Any]) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from (shown(f"{name}.{inner}").strip("'") for inner in value)
        else:
            yield shown(name).strip("'")


STATE = "state.json"
_SPLITS = "dataset_dict.json"


def arrow_files(folder: Path) -> list[Path]:
    """Returns the files of a saved dataset in the order of its rows.

    Raises UserError for another folder, for one of several splits, and for one whose rows are
    chosen by indices.
    """
    if (folder / _SPLITS).is_file():
        splits = ", ".join(sorted(str(state.parent) for state in folder.glob(f"*/{STATE}")))
        raise UserError(f"{folder}: holds several splits; give one of them: {splits}")
    try:
        state = read_json(folder / STATE)
        names = [Path(entry["filename"]).name for entry in state["_data_files"]]
        unread = state.get("_indices_data_files") or state.get("_indices_files")
    except FileNotFoundError as error:
        raise UserError(
            f"{folder}: no dataset saved by save_to_disk (no {STATE} in it); give files, or the "
            "folder of one"
        ) from error
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / STATE}: damaged ({error!r}); save the dataset again") from error
    if unread:
        raise UserError(
            f"{folder}: its rows are chosen by indices; call flatten_indices() before save_to_disk"
        )
    if not names:
        raise UserError(f"{folder}: a dataset without rows; give one with text")
    return [folder / name for name in names]


MOST_WORD_CHARACTERS = 100_000
"""The largest length of one word: a tokeniser takes about a second for it, the time of a hundred
pages.
"""
_PARTED = re.compile(r"[\s。！？]+")
"""The characters that separate words, and sentences where words are not separated."""


def _text(place: str, text: str) -> str:
    """Returns the text as it is. Raises UserError, naming the place, for what no person wrote."""
    if "\0" in text:
        raise UserError(f"{place}: NUL in the text, which no text has; take it out")
    if (
        len(text) > MOST_WORD_CHARACTERS
        and (longest := max(map(len, _PARTED.split(text)))) > MOST_WORD_CHARACTERS
    ):
        raise UserError(
            f"{place}: a word of {longest:,} characters, at most {MOST_WORD_CHARACTERS:,} are "
            "allowed; is this text? Leave it out, or put blanks into it"
        )
    return text


FIELD = "text"
"""The name of the text's field in most datasets."""
TextLayout = Literal["paragraphs", "wikitext"]
"""The way in which documents are separated: by blank lines and records, or by WikiText's titles."""
_PACKED = {".gz", ".xz", ".zst"}
_RECORDS = {
    ".jsonl": json_texts,
    ".ndjson": json_texts,
    ".json": json_texts,
    ".parquet": parquet_texts,
    ".arrow": arrow_texts,
}


def has_records(path: Path) -> bool:
    """Tells whether a file holds texts as fields of records, and not lines of text."""
    return path.is_dir() or _kind(path) in _RECORDS


def texts_in(
    path: Path, field: str, told: Callable[[int], None] = lambda file_bytes: None
) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text): of the records' field, or of the lines of a file of text.

    Raises UserError for what cannot be read, naming the file and the place, and for a text with a
    NUL or a word of more than `MOST_WORD_CHARACTERS`.
    """
    if not path.is_dir():
        read = _RECORDS.get(_kind(path))
        row = ", row " if read in (parquet_texts, arrow_texts) else ":"
        for number, text in read(path, field, told) if read else read_lines(path, told=told):
            yield number, _text(f"{path}{row}{number}", text)
        return
    rows = before = 0
    for file in arrow_files(path):
        for _, text in arrow_texts(file, field, lambda file_bytes: told(before + file_bytes)):  # noqa: B023 (at once)
            rows += 1
            yield rows, _text(f"{path}, row {rows}", text)
        before += file.stat().st_size
    if not rows:
        raise UserError(f"{path}: a dataset without rows; give one with text")


def source_sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes; of a dataset's folder, over those of its files in
    their order.
    """
    if not path.is_dir():
        return file_sha256(path)
    digests = "".join(f"{file_sha256(file)}\n" for file in arrow_files(path))
    return hashlib.sha256(digests.encode()).hexdigest()


def source_bytes(paths: Iterable[Path]) -> int:
    """Returns the size of files and datasets on the disk; missing ones count nothing."""
    files = (file for path in paths for file in (arrow_files(path) if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def _kind(path: Path) -> str:
    """Returns the last part of its name that is no packing: `.jsonl` of `texts.jsonl.gz`."""
    name = path.with_suffix("") if path.suffix in _PACKED else path
    return name.suffix
