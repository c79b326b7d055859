"""The sizes of comparisons among the results, which their data give in words alone."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSize:
    """Says what a comparison was trained with: its results hold this in words alone, and a test
    holds these to them.
    """

    blocks: int
    width: int
    updates: int
    batch_tokens: int
    """The tokens in an update, at most."""
    text: str


SIZES: Mapping[str, GridSize] = {
    "placements_cpu": GridSize(
        blocks=6, width=64, updates=500, batch_tokens=1024, text="multi30k_deen"
    ),
    "placements_cpu_newer": GridSize(
        blocks=6, width=64, updates=500, batch_tokens=1024, text="multi30k_deen"
    ),
    "multi30k_tiny": GridSize(
        blocks=4, width=64, updates=3000, batch_tokens=2048, text="multi30k_ende"
    ),
    "multi30k_cpu": GridSize(
        blocks=6, width=96, updates=800, batch_tokens=2048, text="multi30k_deen"
    ),
}
