"""What clipping leaves of a learning rate: an update whose gradient is always clipped is that of a smaller rate."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

HIDDEN = 1000.0
"""Times by which the gradient exceeds the clip, or the rate the one that its updates have, before it is worth saying.
Recipes clip to 1 where gradients start at 1 to 30; three decades are no choice of a recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """One update with gradient clipping. Raises ValueError for numbers that are not positive."""

    gradient_norm: float
    """Of the whole gradient, before it is clipped; inf for one that overflowed."""
    clip_norm: float
    """Largest norm that the gradient keeps; inf for no clipping."""
    rate: float
    epsilon: float | None
    """Added to the gradient's own size by optimisers that divide by it, such as Adam; 0 for those that divide without,
    such as Lion. None for optimisers whose update grows with the gradient, such as SGD."""
    entries: int = 1
    """Numbers that the gradient has: with `epsilon`, what a typical one of them is."""

    def __post_init__(self) -> None:
        for name in ("gradient_norm", "clip_norm", "rate", "entries"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.epsilon is not None and not 0 <= self.epsilon < inf:
            raise ValueError(f"epsilon must be 0 or more, got {self.epsilon}")

    @property
    def factor(self) -> float:
        """What the gradient is multiplied with; 1 where it is not clipped."""
        return min(1.0, self.clip_norm / self.gradient_norm)

    @property
    def effective_rate(self) -> float:
        """The rate at which an update of this size is made without clipping.

        With SGD it falls with the factor. With Adam it stays, until the typical entry of the clipped gradient falls to
        `epsilon`, which is exact where all entries are equal (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1).
        """
        if self.epsilon is None:
            return self.rate * self.factor
        typical = self.gradient_norm / sqrt(self.entries)
        if self.epsilon == 0 or typical == inf:
            return self.rate
        return self.rate * self.factor * (typical + self.epsilon) / (self.factor * typical + self.epsilon)

    @property
    def is_far_below(self) -> bool:
        """Whether the clip is a thousand times below the gradient."""
        return self.factor * HIDDEN <= 1

    @property
    def hides_rate(self) -> bool:
        """Whether the updates are those of a rate a thousand times smaller."""
        return self.effective_rate * HIDDEN <= self.rate


def epsilon_of(group: Mapping[str, Any]) -> float | None:
    """`Clipping.epsilon` of an optimiser's parameter group, from the settings that it has.

    What has an ε, or two decays (Lion), or bounds of its steps (Rprop), divides by the gradient's own size.
    """
    if "eps" in group:
        return float(group["eps"])
    return 0.0 if {"betas", "etas"} & group.keys() else None
