"""GPAS: Pre-LN whose stream is scaled down after every branch, while its gradient passes as if it were not."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..operations import silu, stopped
from ..registry import register


@register
class GPAS(Placement):
    """h = x + F(LN(x)); x ← h - silu(gate) · h, where the second h has no gradient; y = LN(x).

    Chen et al. 2025, section 3, on Pre-LN. The gate is a number, 0 at first, that the sub-layers of
    a block share, as in the authors' code (github.com/dandingsky/GPAS, `GPASBlock`).
    """

    name = "gpas"
    title = "Gradient-preserving activation scaling"
    gist = "Pre-LN, the sum scaled down by a gate"
    citation = "Chen et al. 2025, arXiv:2506.22049, section 3"
    year = 2025
    initialisation = "normal-0.02"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        gate = sublayer.parameter("gate", initial=0.0, shared_by_block=True)
        total = x + sublayer(norm(x))
        return total - silu(gate) * stopped(total)

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)
