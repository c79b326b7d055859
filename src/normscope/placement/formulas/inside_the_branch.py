"""Norms within F: on queries, keys and values, before its last matrix, or numbers on every head."""

import math

from ..base import Norms, Site, StackShape, Sublayer, Value, residual_gain
from ..operations import by_head
from ..registry import register
from .pre_and_post import PreLN


@register
class SubLN(PreLN):
    """x ← x + F(LN(x)) with LN before the last matrix of F; y = LN(x).

    Wang et al. 2022 (Magneto), figure 2. Values, output projections and both feed-forward matrices
    are drawn at gain `branch_gain`: √ln(2L) in a model of one stack of L blocks; with N encoder and
    M decoder blocks √(ln(3M) ln(2N) / 3) and √ln(3M). Cross-attention is left out of both, as in
    the authors' code (torchscale).
    """

    name = "sub-ln"
    title = "Sub-LN"
    gist = "Pre-LN, and a norm before F's last matrix"
    citation = "Wang et al. 2022 (Magneto), arXiv:2210.06423, figure 2"
    year = 2022
    initialisation = "xavier-normal"
    plain_kinds: tuple[str, ...] = ("cross_attention",)
    """Sub-layers that are Pre-LN's, with neither the inner norm nor the gain."""

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        n, m = stack.encoder_blocks, stack.decoder_blocks
        if n and m and stack.kind == "encoder":
            squared = math.log(3 * m) * math.log(2 * n) / 3
        else:
            squared = math.log(3 * m) if n and m else math.log(2 * stack.blocks)
        self.branch_gain = math.sqrt(squared)

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind in self.plain_kinds:
            return x + sublayer(norm(x))
        return x + sublayer(norm(x), output=norm.inner)

    def gain(self, weight: str, site: Site) -> float:
        return (
            1.0 if weight in ("query", "key") or site.kind in self.plain_kinds else self.branch_gain
        )


@register
class SubLNCross(SubLN):
    """A variant of `sub-ln` in which cross-attention is like every other attention: the paper's
    figure to the letter.
    """

    name = "sub-ln-cross"
    title = "Sub-LN, cross-attention too"
    gist = "sub-ln, its norm in cross-attention too"
    variant_of = "sub-ln"
    models = ("encoder-decoder",)
    plain_kinds = ()


@register
class NormFormer(PreLN):
    """x ← x + LN(A(LN(x))), every head times a number before A's last matrix; x ← x + F(LN(x)) with
    LN before F's.

    Shleifer et al. 2021, section 3: `head_scale` starts at 1, and the inner norm reads what leaves
    the activation; y = LN(x). A decoder's cross-attention is Pre-LN's, as in the authors' code. The
    scaled residual that the paper adds to its smallest models is left out. N(0, 0.02²), since the
    source names no scheme.
    """

    name = "normformer"
    title = "NormFormer"
    gist = "Pre-LN, norms inside F, a scale per head"
    citation = "Shleifer et al. 2021, arXiv:2110.09456, section 3"
    year = 2021
    initialisation = "normal-0.02"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind == "feed_forward":
            return x + sublayer(norm(x), output=norm.inner)
        if sublayer.site.kind == "cross_attention":
            return x + sublayer(norm(x))
        return x + norm.after(self.attention(norm(x), sublayer))

    def attention(self, x: Value, sublayer: Sublayer) -> Value:
        """A(x) with its heads scaled."""
        return sublayer(x, output=lambda heads: by_head(heads, self.head_scale(sublayer)))

    def head_scale(self, sublayer: Sublayer) -> Value:
        return sublayer.parameter("head_scale", initial=1.0, shape=(self.stack.heads,))


@register
class NormFormerFairseq(NormFormer):
    """A variant of `normformer` that scales what leaves A's last matrix in as many equal parts as
    there are heads.

    The authors' code (fairseq, `transformer_layer.py`), where the last matrix has mixed the heads
    by then.
    """

    name = "normformer-fairseq"
    title = "NormFormer, fairseq"
    gist = "normformer, heads scaled after the matrix"
    citation = "Shleifer et al. 2021, arXiv:2110.09456, fairseq's transformer_layer.py"
    variant_of = "normformer"

    def attention(self, x: Value, sublayer: Sublayer) -> Value:
        return by_head(sublayer(x), self.head_scale(sublayer))


@register
class HybridNorm(PreLN):
    """x ← LN(x + F(x)) for attention, its queries, keys and values normed; x ← x + F(x) for
    feed-forward; y = LN(x).

    Zhuo et al. 2025, section 3. Each head is normalised on its own, with one gain for all heads, as
    the paper defines its attention. A decoder's cross-attention, of which the paper does not speak,
    is as self-attention. Weights as Megatron's: N(0, 2/(5d)), the last matrix of each F over
    √(sub-layers).
    """

    name = "hybrid-norm"
    title = "HybridNorm"
    gist = "Q, K, V and attention's sum normalised"
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

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)


@register
class HybridNormStar(HybridNorm):
    """A variant of `hybrid-norm` whose first block is Pre-LN: x ← x + F(LN(x)), the norms inside
    its attention kept.
    """

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
    """A variant of `hybrid-norm` with queries, keys and values normed over their whole width, as in
    the code of OLMo, its base.
    """

    name = "hybrid-norm-width"
    title = "HybridNorm, whole width"
    gist = "hybrid-norm with Q, K, V over all heads"
    variant_of = "hybrid-norm"

    def attention(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return sublayer(x, query=norm.query, key=norm.key, value=norm.value)


@register
class SimpleNorm(PreLN):
    """x ← x + LN(F(x)), LN behind every matrix: queries, keys, values and the feed-forward's first;
    y = LN(x).

    arXiv:2602.01212 in the authors' Llama (`simplegpt_model.py` of SimpleGPT), whose norms are
    RMSNorm: nothing is normalised before F, each linear layer's output is, over its whole width. A
    gated feed-forward's gate is normalised there as well, and here not. A decoder's
    cross-attention, which it has not, is as self-attention. Its last matrices are
    drawn smaller with depth, which a norm behind them undoes at initialisation; ours are not.
    """

    name = "simple-norm"
    title = "SimpleNorm"
    gist = "a norm behind every matrix, none before F"
    citation = "arXiv:2602.01212, simplegpt_model.py of SimpleGPT"
    year = 2026
    initialisation = "normal-0.02"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind == "feed_forward":
            return x + norm(sublayer(x, hidden=norm.hidden))
        return x + norm(sublayer(x, query=norm.query, key=norm.key, value=norm.value))
