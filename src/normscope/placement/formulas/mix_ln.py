"""Mix-LN: Post-LN in the first quarter of the blocks, Pre-LN in the rest."""

from ..base import End, Norms, Placement, StackShape, Sublayer, Value
from ..registry import register


@register
class MixLN(Placement):
    """x ← LN(x + F(x)) in the first ⌊L/4⌋ blocks, x ← x + F(LN(x)) in the rest; y = LN(x).

    Li et al. 2024, section 3 (α = 0.25, found by search: 3 of 12 blocks, 6 of 24). A stack of fewer than 4 blocks is
    Pre-LN throughout. Weights are drawn from N(0, 0.02²), as in the authors' code. There the embedding alone has the
    standard deviation √(2/5) = 0.63, at which it enters the first block, with an output projection of its own; ours is
    drawn from N(0, 1/d) and enters times √d, so at 1, as under every placement of that scheme.
    """

    name = "mix-ln"
    title = "Mix-LN"
    gist = "first quarter Post-LN, then Pre-LN"
    citation = "Li et al. 2024, arXiv:2412.13795, section 3"
    year = 2024
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        self.post_blocks = stack.blocks // 4

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.block <= self.post_blocks:
            return norm(x + sublayer(x))
        return x + sublayer(norm(x))

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)
