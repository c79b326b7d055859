"""Numbers of blocks, experts and labels, and widths, in a Hugging Face configuration, bounded before it is one.

A configuration's own class makes lists of so many entries, and a model's class so many modules, one after another: of
10**18 they would fill memory before anything could be asked of the model. Some classes draw a vector as wide as the
model themselves, whatever device the model is built on.
"""

import re
from collections.abc import Iterator
from typing import Any

from ..errors import UserError
from ..limits.reading import shown

MOST_COUNTED = 100_000
"""Of the configurations of transformers the one that counts most has 50,257 labels (MGP-STR), then 16,384 experts."""
MOST_WIDE = 100_000_000
"""Likewise the largest size is 20,000,000 (of Qwen4's vocabulary of n-grams); so many numbers are drawn in a second."""
_COUNTS = re.compile(r"num_\w+|(\w+_)?(n?layers?|n?blocks|depths?)", re.IGNORECASE)
_SIZES = re.compile(r"\w*(size|dim|channels|embeddings|positions|width)s?", re.IGNORECASE)
_BOUNDS = ((_COUNTS, MOST_COUNTED), (_SIZES, MOST_WIDE))


def refuse_endless(table: dict[str, Any], source: str) -> None:
    """Raise UserError for more than `MOST_COUNTED` of what is made one by one, or something wider than `MOST_WIDE`."""
    for key, number in _numbers(table):
        name = key.rpartition(".")[2]
        most = next((bound for names, bound in _BOUNDS if names.fullmatch(name)), number)
        if number > most:
            raise UserError(
                f"{source}: {key} is {shown(number)}, and {most:,} is the most that is built; give a smaller number"
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
