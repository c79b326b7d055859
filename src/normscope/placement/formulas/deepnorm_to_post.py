"""DeepNorm whose skip scale falls to Post-LN's while it trains."""

from ..base import Norms, Sublayer, Value
from ..registry import register
from .deepnorm import DeepNorm


@register
class DeepNormToPost(DeepNorm):
    """x ← LN(((1 - post) · skip_scale + post) · x + F(x)), skip_scale and weights those of `deepnorm`.

    `post` follows `[adaptive]` from 0, where this is DeepNorm, to 1, where the sum is Post-LN's. No paper of its own.
    """

    name = "deepnorm-to-post"
    title = "DeepNorm to Post-LN"
    gist = "deepnorm that trains its way to Post-LN"
    citation = "its start: Wang et al. 2022, arXiv:2203.00555, figure 2"
    year = 2026
    variant_of = "deepnorm"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        post = sublayer.scheduled("post", initial=0.0)
        return norm(((1 - post) * self.skip_scale + post) * x + sublayer(x))
