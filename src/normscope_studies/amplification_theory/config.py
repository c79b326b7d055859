"""What the study of changes draws: placements, depths, updates, and how often."""

from dataclasses import dataclass

from normscope.placement import named
from normscope.placement.base import StackShape

from .measure import Drawn

EIGHT = ("post-ln", "pre-ln", "deepnorm", "admin", "peri-ln", "sub-ln", "residual", "reordered")
"""Those of which papers state an order of depth, and the most common others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplificationTheoryConfig:
    """Raises ValueError for what cannot be drawn."""

    placements: tuple[str, ...] = EIGHT
    blocks: tuple[int, ...] = (6, 24, 48)
    draws: tuple[int, ...] = (16, 8, 5)
    """At each number of blocks."""
    updates: tuple[str, ...] = ("sgd", "adam", "muon")
    width: int = 256
    tokens: int = 16
    vocabulary: int = 2_000
    own_limit_percent: float = 5.0
    """What deviations of own changes are held against, the mean over all sub-layers of a stack; `limit_percent` those
    of what is amplified and of the output."""
    limit_percent: float = 10.0
    predicted_depths: tuple[int, ...] = (16, 32, 64, 128, 256)
    """Of which the exponents of depth are fitted."""

    def __post_init__(self) -> None:
        if len(self.draws) != len(self.blocks):
            raise ValueError(f"draws must be as many numbers as blocks, got {self.draws} for {self.blocks}")
        if min(self.draws, default=0) < 2:
            raise ValueError(f"draws must be at least 2, for a standard error, got {self.draws}")
        if len(set(self.predicted_depths)) < 3:
            raise ValueError("predicted_depths must be three different depths or more, for an interval")
        unknown = sorted(set(self.updates) - {"sgd", "adam", "muon"})
        if unknown or not self.updates:
            raise ValueError(f"updates must be some of sgd, adam and muon, got {', '.join(unknown) or 'none'}")
        for name in ("own_limit_percent", "limit_percent"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for drawn, _ in self.cases():
            try:
                kind = named(drawn.placement)
            except KeyError as unknown_name:
                raise ValueError(str(unknown_name)) from None
            kind(StackShape(kind="encoder", width=drawn.width, ffn_width=drawn.width, encoder_blocks=drawn.blocks))

    def cases(self) -> list[tuple[Drawn, int]]:
        """What is drawn, and how often."""
        return [
            (Drawn(placement=name, blocks=blocks, width=self.width, tokens=self.tokens, vocabulary=self.vocabulary), n)
            for blocks, n in zip(self.blocks, self.draws, strict=True)
            for name in self.placements
        ]
