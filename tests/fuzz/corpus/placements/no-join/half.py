"""A placement nobody ships."""

from normscope.placement import Placement, register


@register
class HalfLN(Placement):
    """x"""

    name = "half-ln"
    title = "Half-LN"
    citation = "this test"
    year = 2026
