"""How far the hidden state was followed over depth at initialisation."""

from collections.abc import Iterator
from typing import Any

from ..evidence import Depth


def depths(data: Any) -> Iterator[Depth]:
    """`normscope study depth`: what each placement's hidden state did over all blocks."""
    for place, one in enumerate(data["placements"]):
        yield Depth(
            placement=one["name"],
            behaviour=one["behaviour"],
            exponent=one["exponent"],
            source=f"/placements/{place}/exponent",
        )
