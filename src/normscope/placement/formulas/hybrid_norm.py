"""HybridNorm: norms on queries, keys and values, and a Post-LN between attention and feed-forward."""

from ..base import End, Norms, Placement, Site, Sublayer, Value, residual_gain
from ..registry import register


@register
class HybridNorm(Placement):
    """x ← LN(x + F(x)) for attention, its queries, keys and values normed; x ← x + F(x) for feed-forward; y = LN(x).

    Zhuo et al. 2025, section 3. Each head is normed on its own, with one gain for all heads, as the paper defines its
    attention. A decoder's cross-attention, of which the paper does not speak, is as self-attention. Weights as
    Megatron's: N(0, 2/(5d)), the last matrix of each F over √(sub-layers).
    """

    name = "hybrid-norm"
    title = "HybridNorm"
    gist = "Q, K, V normed; norm after attention's sum"
    citation = "Zhuo et al. 2025, arXiv:2503.04598, section 3"
    year = 2025
    initialisation = "megatron"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind == "feed_forward":
            return x + sublayer(x)
        return norm(x + self.attention(x, sublayer, norm))

    def attention(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        """F(x) of an attention sub-layer with its inner norms."""
        heads, of_keys = self.stack.heads, self.stack.heads_of_keys
        return sublayer(
            x,
            query=lambda q: norm.query(q, groups=heads),
            key=lambda k: norm.key(k, groups=of_keys),
            value=lambda v: norm.value(v, groups=of_keys),
        )

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)


@register
class HybridNormStar(HybridNorm):
    """As `hybrid-norm`, the first block Pre-LN: x ← x + F(LN(x)), the norms inside its attention kept."""

    name = "hybrid-norm-star"
    title = "HybridNorm*"
    gist = "hybrid-norm, its first block Pre-LN"
    variant_of = "hybrid-norm"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.block > 1:
            return super().join(x, sublayer, norm)
        if sublayer.site.kind == "feed_forward":
            return x + sublayer(norm(x))
        return x + self.attention(norm(x), sublayer, norm)


@register
class HybridNormWidth(HybridNorm):
    """As `hybrid-norm`, queries, keys and values normed over their whole width: how OLMo's code, its base, does it."""

    name = "hybrid-norm-width"
    title = "HybridNorm, whole width"
    gist = "hybrid-norm, Q, K, V normed over all heads"
    variant_of = "hybrid-norm"

    def attention(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return sublayer(x, query=norm.query, key=norm.key, value=norm.value)
