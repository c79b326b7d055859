"""ProRes: branches that open from the lowest block upwards while it trains, under Pre-LN, Post-LN or DeepNorm."""

from ..base import Constant, Norms, Placement, StackShape, Sublayer, Value
from ..operations import at_most_1
from ..registry import register
from .branch_norm import BranchNorm
from .deepnorm import DeepNorm
from .pre_ln import PreLN


class _Opening(Placement):
    """What the three share: block l of L opens in a straight line and is open at l/L of the schedule."""

    citation = "Chen et al. 2026, arXiv:2603.05369"
    year = 2026

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.slopes = [Constant(stack.blocks / block, "L/l") for block in range(1, stack.blocks + 1)]

    def opened(self, sublayer: Sublayer, x: Value) -> Value:
        """min(open · L/l, 1) · F(x)."""
        number = sublayer.scheduled("open", initial=0.0)
        return at_most_1(number * self.slopes[sublayer.site.block - 1]) * sublayer(x)


@register
class ProRes(_Opening, PreLN):
    """x ← x + min(open · L/l, 1) · F(LN(x)) in block l of L; y = LN(x).

    `open` follows `[adaptive]` from 0 to 1: with T · L updates for `adaptive.over` the factor is the paper's
    min(t / (T · l), 1), its linear schedule, with 1,000 for T.
    """

    name = "prores"
    title = "ProRes"
    gist = "Pre-LN that opens block by block"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + self.opened(sublayer, norm(x))


@register
class ProResPostLN(_Opening, BranchNorm):
    """x ← LN(x + min(open · L/l, 1) · F(x)) in block l of L: `prores` under Post-LN, which is BranchNorm by depth."""

    name = "prores-post-ln"
    title = "ProRes, Post-LN"
    gist = "Post-LN that opens block by block"
    variant_of = "branch-norm"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(x + self.opened(sublayer, x))


@register
class ProResDeepNorm(_Opening, DeepNorm):
    """x ← LN(skip_scale · x + min(open · L/l, 1) · F(x)) in block l of L: `prores` under DeepNorm, with its weights."""

    name = "prores-deepnorm"
    title = "ProRes, DeepNorm"
    gist = "DeepNorm that opens block by block"
    variant_of = "prores"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(self.skip_scale * x + self.opened(sublayer, x))
