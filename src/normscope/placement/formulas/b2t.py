"""B2T: Post-LN with a skip from the bottom of the block to its top."""

from collections.abc import Sequence

from ..base import Placement, Site, Sublayer, Value
from ..registry import register


@register
class BottomToTop(Placement):
    """a ← LN(x + F(x)) for all sub-layers but the last; x ← LN(x + a + F(a)), x being the block's input.

    Takase et al. 2022, section 3, figure 1(c): the skip passes over every norm of the block but the last.
    """

    name = "b2t"
    title = "B2T"
    gist = "Post-LN, and the block's input at its end"
    citation = "Takase et al. 2022, arXiv:2206.00330, section 3"
    year = 2022

    def block(self, state: Value, sublayers: Sequence[Sublayer]) -> Value:
        *others, last = sublayers
        x = state
        for sublayer in others:
            x = sublayer.norm(x + sublayer(x))
        return last.norm(state + x + last(x))


@register
class BottomToTopRescaled(BottomToTop):
    """As `b2t`, every matrix divided by √(blocks of the stack): what the authors' later code adds for deep stacks."""

    name = "b2t-rescaled"
    title = "B2T, rescaled"
    gist = "b2t, matrices divided by √blocks"
    variant_of = "b2t"

    def gain(self, weight: str, site: Site) -> float:
        return float(self.stack.blocks**-0.5)
