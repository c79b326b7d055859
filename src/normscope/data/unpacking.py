"""How far a file has been read, and how long the text may be that comes out of a packed one."""

from dataclasses import dataclass
from pathlib import Path

MOST_TIMES_UNPACKED = 50
"""How many times longer than its packed file a text may be; gzip makes text about 3 times shorter, xz 5 times."""
_LEAST_UNPACKED_BYTES = 20_000_000
"""From here on that is asked: what is shorter is read in seconds, and a short text may well repeat itself."""


@dataclass(slots=True)
class Position:
    """How far a file has been read; whoever reads it keeps it up to date, roughly."""

    file_bytes: int = 0
    """Of the file as it lies on the disk."""


def most_unpacked_bytes(path: Path) -> int:
    """How long a text may be that comes out of a file."""
    return max(_LEAST_UNPACKED_BYTES, MOST_TIMES_UNPACKED * path.stat().st_size)


def too_much_unpacked(path: Path) -> str:
    """What is said of a file whose text is longer than that."""
    return (
        f"more than {MOST_TIMES_UNPACKED} times as many bytes come out of this file as its {path.stat().st_size:,}, "
        "which is no text that people wrote; if it is one, unpack it and give that"
    )
