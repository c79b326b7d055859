"""A placement nobody ships."""

from normscope.placement import Placement, register


@register
class HalfLN(Placement):
    """x ← LN(x / 2 + F(x))"""

    name = "half-ln"
    title = "Half-LN"
    citation = "this test"
    year = 2026

    def join(self, x, sublayer, norm):
        return norm(0.5 * 1e400 + sublayer(x))
