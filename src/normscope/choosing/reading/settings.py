"""Where a result was measured, as its data say."""

from typing import Any

from ...placement.base import ModelKind
from ..evidence import EvidenceSetting


def measured_in(
    name: str,
    data: Any,
    *,
    model: ModelKind,
    blocks: int | list[int],
    width: int | list[int],
    updates: int,
    update_tokens: int,
    text: str,
    unigram_nats: float | None,
    part: str = "",
) -> EvidenceSetting:
    """The setting of a result, or of a part of it.

    blocks, width: a number, or all that there were. update_tokens: of one update, at most. text: the corpus's folder.
    part: what tells it from the other settings of the same result.
    """
    return EvidenceSetting(
        name=f"{name}, {part}" if part else name,
        result=name,
        title=data["title"],
        created=data["created"],
        model=model,
        blocks=_ends(blocks),
        width=_ends(width),
        tokens=updates * update_tokens,
        updates=updates,
        text=text.rpartition("/")[2],
        unigram_nats=unigram_nats,
    )


def _ends(sizes: int | list[int]) -> tuple[int, int]:
    several = [sizes] if isinstance(sizes, int) else sizes
    return min(several), max(several)
