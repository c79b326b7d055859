"""Which source trained the runs that a result was read from."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..report.words import counted
from .state import PoolCell

_KEYS = ("normscope", "source_sha256", "commit")


def sources(cells: Iterable[PoolCell]) -> dict[str, dict[str, Any]]:
    """By run: the version, the hash of the source and the commit that its environment names.

    A folder may hold runs that an earlier source trained; finished runs are not trained again.
    """
    return {cell.name: {key: cell.folder.environment().get(key, "") for key in _KEYS} for cell in cells}


def in_words(found: dict[str, dict[str, Any]]) -> str:
    """The sources of several runs in a line: "source 1a2b3c4d5e6f (4 runs)"."""
    counts = Counter(str(one["source_sha256"])[:12] or "unknown" for one in found.values())
    return ", ".join(f"source {name} ({counted(count, 'run')})" for name, count in counts.items())
