"""Which model types are looked at, and for how long each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FamiliesConfig:
    """One small model of each type, with initial weights. Raises ValueError."""

    families: tuple[str, ...] = ()
    """Model types such as gpt2; none for all that transformers has."""
    every: int = 1
    """Every so many types in alphabetical order: 4 looks at a quarter of them."""
    tokens: int = 12
    sequences: int = 2
    largest: int = 15_000_000
    """Parameters; a model whose configuration cannot be made smaller is left out."""
    limit_seconds: float = 90.0
    seed: int = 0

    def __post_init__(self) -> None:
        if (
            self.tokens < 2
            or self.every < 1
            or self.sequences < 1
            or self.largest < 1
            or not self.limit_seconds > 0
            or self.seed < 0
        ):
            raise ValueError("tokens must be at least 2, the others positive, and seed 0 or more")
