"""What others have published, `published.toml`, as values."""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .values import Published

FILE = Path(__file__).with_name("published.toml")


@cache
def published() -> Sequence[Published]:
    """Every entry, in the order of the file."""
    return [Published(**one) for one in tomllib.loads(FILE.read_text(encoding="utf-8"))["published"]]
