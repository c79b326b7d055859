"""LayerNorm scaling: Pre-LN whose normed input shrinks with depth."""

import math

from ..base import Constant, End, Norms, Placement, StackShape, Sublayer, Value
from ..registry import register


@register
class LayerNormScaling(Placement):
    """x ← x + F(LN(x) / √l), l the block counted from 1 in its stack; y = LN(x), not scaled.

    Sun et al. 2025, section 3, who advise against GPT-2's scaled weights beside it: all matrices from N(0, 0.02²).
    """

    name = "lns"
    title = "LayerNorm scaling"
    citation = "Sun et al. 2025, arXiv:2502.05795, section 3"
    year = 2025
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.roots = [Constant(math.sqrt(block), "√l") for block in range(1, stack.blocks + 1)]

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + sublayer(norm(x) / self.roots[sublayer.site.block - 1])

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)
