"""Text files line by line, plain or packed, within limits; errors name the file and the line."""

import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..errors import UserError, installation, user_errors

MAX_LINE_BYTES = 1_000_000
_ZSTD_BYTES = 2**18
_TOLD_EVERY_LINES = 256


def read_lines(
    path: Path,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    holds: str = "sentence",
    told: Callable[[int], None] = lambda file_bytes: None,
) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end) of a UTF-8 file, plain, `.gz`, `.xz` or
    `.zst`.

    Only LF and CR LF end a line: other separators of Unicode stand inside sentences of real
    corpora. A byte order mark at the very beginning is left out. Never holds more than about
    `max_line_bytes` in memory.

    Raises UserError for a file that is missing, unreadable, not a regular file, empty, binary, not
    UTF-8, corrupt, or holds a line longer than `max_line_bytes`. holds: what a line is, for the
    message where one is too long. told: is called now and then with how far the file has been read,
    as it lies on the disk.
    """
    number = 0
    with _told_to_the_user(path), path.open("rb") as packed, _unpacked(path, packed) as stream:
        while line := stream.readline(max_line_bytes + 2):  # + 2 for CR LF
            number += 1
            if number % _TOLD_EVERY_LINES == 0:
                told(packed.tell())
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > max_line_bytes:
                raise UserError(
                    f"{path}:{number}: line of {len(line)} bytes or more, at most {max_line_bytes} "
                    f"are allowed; is this text with one {holds} a line?"
                )
            yield number, _decoded(path, number, line)
    if number == 0:
        raise UserError(f"{path}: empty file; give a text file with one {holds} a line")


def file_sha256(path: Path) -> str:
    """Returns the SHA-256 of the bytes as they lie on the disk. Raises UserError where the file
    cannot be read.
    """
    with _told_to_the_user(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _unpacked(path: Path, packed: BinaryIO) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(packed, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(packed, "rb"))
    if path.suffix == ".zst":
        return _unpacked_zstd(packed)
    return packed


def _unpacked_zstd(packed: BinaryIO) -> BinaryIO:
    """Opens the content of a Zstandard file; Python has a reader of its own from 3.14 on."""
    arrow = opened_pyarrow(Path(packed.name))
    stream = arrow.CompressedInputStream(arrow.PythonFile(packed, mode="r"), "zstd")
    return cast(BinaryIO, io.BufferedReader(stream, _ZSTD_BYTES))


def opened_pyarrow(path: Path) -> Any:
    """Returns the library of that name, imported when a file needs it. Raises UserError where it is
    not installed.
    """
    with user_errors(
        ImportError, said=lambda _: f"{path}: reading it takes pyarrow; {installation('parquet')}"
    ):
        import pyarrow
        import pyarrow.ipc
    return pyarrow


def _decoded(path: Path, number: int, line: bytes) -> str:
    if b"\0" in line:
        raise UserError(
            f"{path}:{number}: NUL byte, so a binary or UTF-16 file; give UTF-8 text, plain or .gz "
            "or .xz"
        )
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}:{number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is "
            "not UTF-8; convert the file, for instance with iconv"
        ) from error
    return text.removeprefix("\ufeff") if number == 1 else text


@contextmanager
def _told_to_the_user(path: Path) -> Iterator[None]:
    try:
        # A pipe can be read once only, and files are read twice: first checked, then used.
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise UserError(f"{path}: is {kind}; give a text file, plain or .gz or .xz")
        yield
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; check the path") from error
    except PermissionError as error:
        raise UserError(
            f"{path}: no permission to read this file; change its mode or give another"
        ) from error
    except EOFError as error:
        raise UserError(
            f"{path}: the compressed file is cut short; fetch or pack it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise UserError(
            f"{path}: not a {path.suffix} file, or a corrupt one ({error}); pack it again"
        ) from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
