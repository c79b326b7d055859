"""Reordered norm (OLMo 2, Swin v2): the norm stands after the branch, before the sum."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..registry import register


@register
class ReorderedNorm(Placement):
    """x ← x + LN(F(x)); y = LN(x).

    OLMo team 2025 (OLMo 2), section 3.2; before it Liu et al. 2021 (Swin v2, "res-post-norm"). Weights from
    N(0, 0.02²).
    """

    name = "reordered"
    title = "Reordered norm"
    citation = "OLMo et al. 2025 (OLMo 2), arXiv:2501.00656, section 3.2"
    year = 2025
    initialisation = "normal-0.02"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + norm(sublayer(x))

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)


@register
class OLMo2(ReorderedNorm):
    """As `reordered`, with norms on queries and keys over their whole width: the released OLMo 2 models."""

    name = "olmo-2"
    title = "OLMo 2"
    gist = "norm after F, queries and keys normed too"
    variant_of = "reordered"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind == "feed_forward":
            return x + norm(sublayer(x))
        return x + norm(sublayer(x, query=norm.query, key=norm.key))
