"""NormFormer: Pre-LN with a norm after attention, one inside the feed-forward, and a number for every head."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..operations import by_head
from ..registry import register


@register
class NormFormer(Placement):
    """x ← x + LN(A(LN(x))), every head times a number before A's last matrix; x ← x + F(LN(x)) with LN before F's.

    Shleifer et al. 2021, section 3: `head_scale` starts at 1, and the inner norm reads what leaves the activation;
    y = LN(x). A decoder's cross-attention is Pre-LN's, as in the authors' code. The scaled residual that the paper adds
    to its smallest models is left out. N(0, 0.02²), since the source names no scheme.
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

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)


@register
class NormFormerFairseq(NormFormer):
    """As `normformer`, what leaves A's last matrix is scaled in as many equal parts as there are heads.

    The authors' code (fairseq, `transformer_layer.py`), where the last matrix has mixed the heads by then.
    """

    name = "normformer-fairseq"
    title = "NormFormer, fairseq"
    gist = "normformer, heads scaled after the matrix"
    citation = "Shleifer et al. 2021, arXiv:2110.09456, fairseq's transformer_layer.py"
    variant_of = "normformer"

    def attention(self, x: Value, sublayer: Sublayer) -> Value:
        return by_head(sublayer(x), self.head_scale(sublayer))
