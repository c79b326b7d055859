"""Numbers of blocks, experts and labels in a Hugging Face configuration, bounded before it is one.

A configuration's own class makes lists of so many entries, and a model's class so many modules, one after another: of
10**18 they would fill memory before anything could be asked of the model.
"""

import re
from collections.abc import Iterator
from typing import Any

from ..errors import UserError
from ..limits.reading import shown

MOST_COUNTED = 100_000
"""Of the configurations of transformers the one that counts most has 50,257 labels (MGP-STR), then 16,384 experts."""
_COUNTS = re.compile(r"num_\w+|(\w+_)?(n?layers?|n?blocks|depths?)", re.IGNORECASE)


def refuse_endless(table: dict[str, Any], source: str) -> None:
    """Raise UserError where there are more than `MOST_COUNTED` of what is made one after another, such as blocks."""
    for key, number in _numbers(table):
        if number > MOST_COUNTED and _COUNTS.fullmatch(key.rpartition(".")[2]):
            raise UserError(
                f"{source}: {key} is {shown(number)}, and {MOST_COUNTED:,} is the most that is built; "
                "give a smaller number"
            )


def largest(table: dict[str, Any], count: int = 3) -> str:
    """The largest whole numbers with their dotted keys, as words: what makes a model too large is among them."""
    found = sorted(_numbers(table), key=lambda entry: -entry[1])[:count]
    return ", ".join(f"{key} = {shown(number)}" for key, number in found)


def _numbers(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number, also those in lists and in configurations within, by dotted key."""
    for name, value in table.items():
        key = f"{above}{name}"
        if isinstance(value, dict):
            yield from _numbers(value, f"{key}.")
            continue
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, dict):
                yield from _numbers(part, f"{key}.")
            elif isinstance(part, int):
                yield key, part
