"""BranchNorm: Post-LN whose branches are let in over the first updates, all at once or the lowest first."""

from ..base import Constant, Norms, Placement, StackShape, Sublayer, Value
from ..registry import register


@register
class BranchNorm(Placement):
    """x ← LN(x + branch_scale · F(x)), branch_scale rising from 0 to 1 over the first updates: Post-LN from then on.

    Liu et al. 2023, section 4, in our reading of a paper without code: a straight line, the update divided by
    `adaptive.over` (there: T, the "maximum norm step"), and Post-LN's weights.
    """

    name = "branch-norm"
    title = "BranchNorm"
    citation = "Liu et al. 2023, arXiv:2305.02790, section 4"
    year = 2023

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(x + sublayer.scheduled("branch_scale", initial=0.0) * sublayer(x))


@register
class BranchNormByDepth(BranchNorm):
    """As `branch-norm`, the lowest blocks first: x ← LN(x + branch_scale^l · F(x)) in block l.

    Of L blocks the first is half open when branch_scale is 1/2, the last when it is 2^(-1/L). No paper of its own.
    """

    name = "branch-norm-by-depth"
    title = "BranchNorm, lowest first"
    citation = "after Liu et al. 2023, arXiv:2305.02790, section 4"
    year = 2026
    variant_of = "branch-norm"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.powers = [Constant(block, "l") for block in range(1, stack.blocks + 1)]

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        opening = sublayer.scheduled("branch_scale", initial=0.0) ** self.powers[sublayer.site.block - 1]
        return norm(x + opening * sublayer(x))
