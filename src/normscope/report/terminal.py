"""What a terminal shows, as plain text for `print`: its columns, its letters, and no colours."""

import codecs
import io
import re
import shutil
import sys
import unicodedata
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def broken(text: str, columns: int | None = None) -> str:
    """The text with every line broken to the columns, of the terminal where they are not given; words stay whole."""
    width = columns or shutil.get_terminal_size((80, 24)).columns
    lines = [(line, " " * (len(line) - len(line.lstrip()))) for line in text.split("\n")]
    return "\n".join(
        "\n".join(wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
        for line, indent in lines
    )


def plain_text(*shown: "RenderableType") -> str:
    """Each below the other, as wide as the terminal, or 80 columns without one; in ASCII where it has nothing else."""
    from rich.console import Console

    letters = getattr(sys.stdout, "encoding", None) or "utf-8"
    file = io.TextIOWrapper(io.BytesIO(), encoding=letters, errors=LIKE_LETTERS, newline="\n")
    width = shutil.get_terminal_size((80, 24)).columns
    console = Console(file=file, width=width, color_system=None, highlight=False, markup=False, emoji=False)
    for one in shown:
        console.print(one)
    file.flush()
    text = file.buffer.getvalue().decode(letters)
    return "\n".join(line.rstrip() for line in text.splitlines())


_ALIKE = str.maketrans("▁▂▃▄▅▆▇█▲×┐┘—–−…·√‖←→≤≥≈∞∈’‘“”", "_.-:=+*#^x||---.*v|<><>~8e''\"\"")


def _alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end].translate(_ALIKE)
    return "".join(map(_ascii_letter, letters)), error.end


def _ascii_letter(letter: str) -> str:
    """Of a Greek letter the first of its name, of one with an accent that without, else a question mark."""
    greek = re.match("GREEK (SMALL|CAPITAL) LETTER (.)", unicodedata.name(letter, ""))
    if greek:
        return greek[2].lower() if greek[1] == "SMALL" else greek[2]
    plain = unicodedata.normalize("NFKD", letter)[:1]
    return plain if plain.isascii() else "?"


LIKE_LETTERS = "normscope"
"""How a stream writes what its encoding has not, as `errors`: by like letters, one for one, so that lines keep their
length."""
codecs.register_error(LIKE_LETTERS, _alike)

_ASCII = codecs.lookup("ascii")
ASCII_BY_ANOTHER_NAME = "normscope-ascii"
"""The same encoding: where a stream says that it is ASCII by its own, click writes UTF-8 past it."""


def _named(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != ASCII_BY_ANOTHER_NAME:
        return None
    return codecs.CodecInfo(
        _ASCII.encode,
        _ASCII.decode,
        incrementalencoder=_ASCII.incrementalencoder,
        incrementaldecoder=_ASCII.incrementaldecoder,
        name=ASCII_BY_ANOTHER_NAME,
    )


codecs.register(_named)


def writes_like_letters(stream: io.TextIOWrapper) -> None:
    """Have a stream write a like letter for each that its encoding has not, whoever writes into it."""
    is_ascii = codecs.lookup(stream.encoding).name == _ASCII.name
    stream.reconfigure(encoding=ASCII_BY_ANOTHER_NAME if is_ascii else None, errors=LIKE_LETTERS)
