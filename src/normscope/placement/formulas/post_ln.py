"""Post-LN: the norm stands between the residual blocks."""

from ..base import Norms, Placement, Sublayer, Value
from ..registry import register


@register
class PostLN(Placement):
    """x ← LN(x + F(x)); no final norm, as every block ends in one.

    Vaswani et al. 2017, section 3.1; Xiong et al. 2020, table 1 (left).
    """

    name = "post-ln"
    title = "Post-LN"
    citation = "Vaswani et al. 2017, arXiv:1706.03762, section 3.1"
    year = 2017

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(x + sublayer(x))
