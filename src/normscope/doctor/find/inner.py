"""Where norms stand inside a sub-layer."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, order=True)
class InnerPlace:
    """The place of a norm within F, or within a mean over depth."""

    name: Literal["score", "value", "output", "hidden", "mixer", "key"]
    """score is of attention's queries and keys, mixer of a way of mixing tokens that is no attention, and key of a mean
    over depth."""
    by_head: bool = False
    """Whether parts of a token's features are normed each on their own."""

    def __str__(self) -> str:
        return f"{self.name} by head" if self.by_head else self.name
