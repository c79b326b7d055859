"""Which stacks are updated how, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from normscope.placement import named
from normscope.theory.settings import ModelSetting

from ..engine.study import Scale

PLACEMENTS = ("post-ln", "pre-ln", "deepnorm", "admin", "rezero", "peri-ln", "sub-ln", "residual")

RANDOM = "random"
"""An update that is drawn independently of the weights, as Liu et al. 2020 take all to be in theorem 2."""

SMALL_RATES: Mapping[str, float] = MappingProxyType(
    {RANDOM: 1e-7, "sgd": 1e-5, "adam": 1e-7, "lion": 1e-7, "muon": 1e-7}
)
"""At which the change in float64 goes as the square of the rate, which numbers are over. SGD's is larger, because its
gradients are small; of all others the entries of an update are about the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplificationConfig:
    """Encoders, alike but for placement, depth and update. Raises ValueError for what cannot be measured."""

    placements: tuple[str, ...] = PLACEMENTS
    updates: tuple[str, ...] = (RANDOM, "sgd", "adam", "muon")
    """Lion's first is the gradient's sign, as Adam's is."""
    depths: tuple[int, ...] = (6, 12, 24, 48)
    """In blocks of two sub-layers."""
    width: int = 64
    seeds: int = 3
    tokens: int = 16
    sequences: int = 4
    vocabulary: int = 256
    setting: str = "theory"
    """Initial weights, as `normscope predict` has them; theory: one head, W_Q = W_K = 0, no W_O, N(0, 1 / fan-in)."""
    alone_of: tuple[str, ...] = (RANDOM, "adam")
    """Updates of which every block's change alone is measured, a pass for each ..."""
    alone_blocks: int = 12
    """... in stacks of so many blocks, one of `depths`."""
    edge: float = 0.2
    """An exponent agrees with an order where its interval lies within so much of the order's."""
    sum_edge: float = 0.25
    """The change is the sum of what each block's does alone where the interval of their ratio lies within so much of
    1."""

    def __post_init__(self) -> None:
        for name in ("placements", "updates", "depths"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}: give one or more different values, got {values}")
        if unknown := [name for name in self.updates if name not in SMALL_RATES]:
            raise ValueError(f"updates: {', '.join(unknown)} is none; choose from {', '.join(SMALL_RATES)}")
        if unknown := [name for name in self.alone_of if name not in self.updates]:
            raise ValueError(f"alone_of: {', '.join(unknown)} is not among the updates {', '.join(self.updates)}")
        if self.alone_of and self.alone_blocks not in self.depths:
            raise ValueError(f"alone_blocks={self.alone_blocks} must be one of depths={self.depths}")
        if list(self.depths) != sorted(self.depths) or self.depths[0] < 2 or len(self.depths) < 2:
            raise ValueError(f"depths: give at least two in rising order, of 2 blocks and more, got {self.depths}")
        if self.seeds < 2 or self.sequences < 1:
            raise ValueError("seeds must be at least 2, and sequences at least 1")
        if not min(self.edge, self.sum_edge) > 0:
            raise ValueError(f"edges must be positive, got {self.edge} and {self.sum_edge}")
        for name in self.placements:
            named(name)(self.model(self.depths[0]).shape("encoder"))

    def model(self, blocks: int) -> ModelSetting:
        """The setting of a stack of so many blocks."""
        return ModelSetting(
            blocks=blocks,
            width=self.width,
            ffn_width=self.width,
            tokens=self.tokens,
            sequences=self.sequences,
            vocabulary=self.vocabulary,
            setting=self.setting,
        )


SCALES = {
    "smoke": Scale(
        config=AmplificationConfig(
            placements=("post-ln", "rezero"),
            updates=(RANDOM, "adam"),
            alone_of=(RANDOM,),
            depths=(2, 3),
            width=8,
            seeds=2,
            tokens=4,
            sequences=2,
            vocabulary=16,
            alone_blocks=3,
        ),
        decides=False,
    ),
    "cpu": Scale(config=AmplificationConfig()),
    "paper": Scale(config=AmplificationConfig(width=512, seeds=10, tokens=32, sequences=16, vocabulary=10_000)),
}
"""Cost: smoke takes seconds; cpu a few minutes of one core; paper hours of one."""
