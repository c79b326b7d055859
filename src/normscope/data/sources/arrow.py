"""Texts of Parquet files and of Arrow files as `datasets` saves them, read with pyarrow a few rows at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import UserError
from .lines import Position, most_unpacked_bytes, opened_pyarrow, too_much_unpacked

_ROWS_AT_ONCE = 256


def parquet_texts(path: Path, field: str, position: Position | None = None) -> Iterator[tuple[int, str]]:
    """Yield (row from 1, text) of one column; a null is a text without characters.

    field: name of the column, or `column.part` inside a column of structures. Raises UserError for another file, for
    a field that is not there or holds no text, and for one that becomes too long when it is unpacked.
    """
    arrow = opened_pyarrow(path)
    from pyarrow import parquet

    with _refused_where_damaged(path, "Parquet"):
        # Pages are read as they are needed: a group of rows may be as long as the file.
        file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
        schema, rows = file.schema_arrow, max(file.metadata.num_rows, 1)
        _check_field(path, schema, field, arrow)  # names of columns may be no UTF-8
        batches = file.iter_batches(_ROWS_AT_ONCE, columns=[field], use_threads=False)
    yield from _texts(path, batches, field, rows, position, "Parquet")


def arrow_texts(path: Path, field: str, position: Position | None = None) -> Iterator[tuple[int, str]]:
    """As `parquet_texts`, of an Arrow file in the stream or the file format."""
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
    for number, text in _texts(path, iter(reader), field, 0, None, "Arrow"):
        if position is not None:
            position.file_bytes = source.tell()
        yield number, text


def _texts(
    path: Path, batches: Iterator[Any], field: str, rows: int, position: Position | None, kind: str
) -> Iterator[tuple[int, str]]:
    """rows: in all, by which the position is told."""
    number = unpacked_bytes = 0
    file_bytes, most_bytes = path.stat().st_size, most_unpacked_bytes(path)
    while True:
        with _refused_where_damaged(path, kind):
            batch: Any = next(batches, None)
            if batch is None:
                break
            # Offsets that a stranger wrote may point anywhere; only then does reading a value do so too.
            batch.validate(full=True)
            texts = _column(batch, field).to_pylist()
        for text in texts:
            number += 1
            unpacked_bytes += max(len(text or ""), 1)
            if unpacked_bytes > most_bytes:
                raise UserError(f"{path}, row {number:,}: {too_much_unpacked(path)}")
            yield number, text or ""
        if position is not None and rows:
            position.file_bytes = min(file_bytes, file_bytes * number // rows)


def _column(batch: Any, field: str) -> Any:
    from pyarrow import compute

    if field in batch.schema.names:
        return batch.column(field)
    name, _, inner = field.partition(".")
    return compute.struct_field(batch.column(name), inner.split("."))


def _check_field(path: Path, schema: Any, field: str, arrow: Any) -> None:
    found = _type_of(schema, field, arrow)
    names = [
        f"{column.name}.{inner.name}" if inner is not None else column.name
        for column in schema
        for inner in (list(column.type) if arrow.types.is_struct(column.type) else [None])
    ]
    if found is None:
        raise UserError(
            f"{path}: no field {field!r} in it; it has {', '.join(names) or 'none'}; name the field of the text"
        )
    if arrow.types.is_dictionary(found):
        found = found.value_type
    if not (arrow.types.is_string(found) or arrow.types.is_large_string(found) or arrow.types.is_string_view(found)):
        raise UserError(f"{path}: the field {field!r} holds {found}, not text; name the field of the text")


def _type_of(schema: Any, field: str, arrow: Any) -> Any:
    if field in schema.names:
        return schema.field(field).type
    name, *parts = field.split(".")
    found: Any = schema.field(name).type if name in schema.names else None
    for part in parts:
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
        raise UserError(f"{path}: no {kind} file, or a damaged one ({said}); fetch or write it again") from error
