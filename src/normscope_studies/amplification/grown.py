"""How a change grows with depth: exponents, beside the orders that papers state."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from normscope.evidence.estimates import estimate, exponent
from normscope.measure import Estimate

from .config import AmplificationConfig
from .predicted import predicted_exponent
from .stacks import Found

SUBLAYERS_A_BLOCK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a paper states of a placement."""

    power: float | None
    """Of the depth; None for its logarithm."""
    words: str
    source: str

    def exponent(self, depths: Sequence[int]) -> float:
        """The slope of the logarithm of the order over that of the depth, by least squares over these depths."""
        if self.power is not None:
            return self.power
        x = np.log(np.asarray(depths, dtype=np.float64))
        y = np.log(np.log(SUBLAYERS_A_BLOCK * np.asarray(depths, dtype=np.float64)))
        centred = x - x.mean()
        return float(centred @ y / (centred @ centred))

    def growth(self, depths: Sequence[int]) -> list[float]:
        """Over the first depth."""
        grown = [math.log(SUBLAYERS_A_BLOCK * n) if self.power is None else n**self.power for n in depths]
        return [value / grown[0] for value in grown]


_LIU = "Liu et al. 2020, arXiv:2004.08249"
ORDERS: Mapping[str, Order] = MappingProxyType(
    {
        "post-ln": Order(power=1.0, words="N", source=f"{_LIU}, section 4.1"),
        "pre-ln": Order(power=None, words="log N", source=f"{_LIU}, section 4.1"),
        "admin": Order(power=None, words="log N", source=f"{_LIU}, section 4.2"),
        "deepnorm": Order(power=0.0, words="1", source="Wang et al. 2022, arXiv:2203.00555, section 3.3, of SGD"),
    }
)
"""Of the variance of the output's change by one update, N being the number of sub-layers. DeepNorm's is of its norm,
whose square has the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """Of one placement and kind of update."""

    placement: str
    update: str
    exponent: Estimate
    """The change of the output goes as the number of blocks to this power."""
    predicted: float | None
    """The same power from the formula alone; None where theory does not follow."""
    logs: Sequence[Estimate]
    """Of the logarithm of the change, at each depth."""
    alone: Estimate | None
    """What the blocks' changes do alone, summed, over the change of all together; None where it was not asked."""


def growths(config: AmplificationConfig, found: Found) -> list[Grown]:
    """Of every placement and update, in the order of the settings."""
    return [_grown(config, found, placement, update) for placement in config.placements for update in config.updates]


def _grown(config: AmplificationConfig, found: Found, placement: str, update: str) -> Grown:
    at_depth = [[seed[update] for seed in found[placement, blocks]] for blocks in config.depths]
    outputs_SX = [[one["output"] for one in seed] for seed in zip(*at_depth, strict=True)]
    alone = None
    if update in config.alone_of:
        alone = estimate([seed[update]["alone"] for seed in found[placement, config.alone_blocks]])
    return Grown(
        placement=placement,
        update=update,
        exponent=exponent(config.depths, outputs_SX),
        predicted=predicted_exponent(config, placement, update),
        logs=[estimate([math.log(one["output"]) for one in seeds]) for seeds in at_depth],
        alone=alone,
    )
