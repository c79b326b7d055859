"""Pre-LN: the norm stands inside the residual branch, and once more after the stack."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..registry import register


@register
class PreLN(Placement):
    """x ← x + F(LN(x)); y = LN(x) after every stack.

    Xiong et al. 2020, table 1 (right); Baevski & Auli 2018; Wang et al. 2019.
    """

    name = "pre-ln"
    title = "Pre-LN"
    citation = "Xiong et al. 2020, arXiv:2002.04745, table 1"
    year = 2019

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + sublayer(norm(x))

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)
