"""SiameseNorm: a Post-LN stream and a Pre-LN stream that share every branch."""

import math

from ..base import Constant, End, Norms, Placement, StackShape, Sublayer, Value
from ..registry import register

_Streams = tuple[Value, Value]


@register
class SiameseNorm(Placement):
    """x ← LN(x); z = F(LN(x + LN(y))); x ← x + z/√(2l); y ← y + z; out LN(LN(x) + LN(y)), l the block, from 1.

    Li et al. 2026 as in the authors' DeiT code (`deit-model-siamesenorm.py`), from which we read it: the paper's text
    was not at hand. Every LN is one of its own, both streams start from the embedding, and the 2 is there whatever the
    block holds, as it is here where a decoder attends to an encoder.
    """

    name = "siamese-norm"
    title = "SiameseNorm"
    gist = "a Post-LN and a Pre-LN stream share F"
    citation = "Li et al. 2026, arXiv:2602.08064, deit-model-siamesenorm.py"
    year = 2026
    streams = ("x", "y")
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.roots = [Constant(math.sqrt(2 * block), "√(2l)") for block in range(1, stack.blocks + 1)]

    def start(self, x: Value, end: End) -> _Streams:
        return x, x

    def join(self, x: _Streams, sublayer: Sublayer, norm: Norms) -> _Streams:
        post, pre = x
        post = norm.post(post)
        branch = sublayer(norm.input(post + norm.pre(pre)))
        return self.added(post, pre, branch, sublayer)

    def added(self, post: Value, pre: Value, branch: Value, sublayer: Sublayer) -> _Streams:
        """Both streams with the branch of a sub-layer, smaller with depth in the Post-LN one."""
        return post + branch / self.roots[sublayer.site.block - 1], pre + branch

    def finish(self, state: _Streams, end: End) -> Value:
        post, pre = state
        return end.norm(end.norm.post(post) + end.norm.pre(pre))


@register
class SiameseNormHybrid(SiameseNorm):
    """As `siamese-norm`, attention with HybridNorm's inner norms in place of those around x: z = A(s · x + LN(y)).

    The authors' language model (`OLMo_model_hybrid_pre.py`), in which attention neither norms x nor its input, and s is
    a vector that starts at 1. Its queries, keys and values are normed by head, as in the code for the heads' width (the
    published file leaves to a configuration whether they are). Cross-attention, which it has not, is as attention.
    """

    name = "siamese-norm-hybrid"
    title = "SiameseNorm, hybrid"
    gist = "siamese-norm with hybrid-norm's attention"
    citation = "Li et al. 2026, arXiv:2602.08064, OLMo_model_hybrid_pre.py"
    variant_of = "siamese-norm"

    def join(self, x: _Streams, sublayer: Sublayer, norm: Norms) -> _Streams:
        if sublayer.site.kind == "feed_forward":
            return super().join(x, sublayer, norm)
        post, pre = x
        heads, of_keys = self.stack.heads, self.stack.heads_of_keys
        scale = sublayer.parameter("post_scale", initial=1.0, shape=(self.stack.width,))
        branch = sublayer(
            scale * post + norm.pre(pre),
            query=lambda q: norm.query(q, groups=heads),
            key=lambda k: norm.key(k, groups=of_keys),
            value=lambda v: norm.value(v, groups=of_keys),
        )
        return self.added(post, pre, branch, sublayer)
