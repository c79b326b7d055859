"""Which models are trained, for how long, and with which seeds."""

from dataclasses import dataclass

FEWEST_BLOCKS = 3
"""The doctor compares sub-layers with those after them, and asks for five sub-layers at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagConfig:
    """Trainings of small causal language models on sequences of random dependencies. Raises ValueError."""

    widths: tuple[int, ...] = (32, 64)
    blocks: tuple[int, ...] = (3, 4)
    seeds: tuple[int, ...] = (101, 102)
    """Of weights and data; the rule's thresholds were chosen on seeds 0 to 2."""
    after: tuple[int, ...] = (300, 1000)
    """Updates of one training after which its weights are loaded under both flags."""
    rate: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("widths", "blocks", "seeds", "after"):
            given = getattr(self, name)
            if not given or min(given) < 0 or sorted(set(given)) != list(given):
                raise ValueError(f"{name} must be different numbers in rising order, at least one, got {given}")
        if self.blocks[0] < FEWEST_BLOCKS:
            raise ValueError(f"blocks must be at least {FEWEST_BLOCKS}: below, there is too little to compare")
        if any(width % 4 or not width for width in self.widths):
            raise ValueError(f"widths must be multiples of 4, the number of heads, got {self.widths}")
        if self.after[0] < 1 or not self.rate > 0:
            raise ValueError("after must be at least 1, and rate positive")
