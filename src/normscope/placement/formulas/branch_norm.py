"""BranchNorm: Post-LN whose branch is let in over the first updates."""

from ..base import Norms, Placement, Sublayer, Value
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
