"""The placements with two streams: a sum that nothing norms beside one that is, or the embedding
itself.
"""

import math
from collections.abc import Sequence

from ..base import Constant, End, Norms, Placement, StackShape, State, Sublayer, Value
from ..registry import register

_Streams = tuple[Value, Value]


@register
class ResiDual(Placement):
    """x ← LN(x + F(x)), r ← r + F(x), both from the embedding; y = x + LN(r).

    Xie et al. 2023, section 3 (there: dual residual x^ln and x^d), with LayerNorm epsilon 1e-7 as
    in the authors' code.
    """

    name = "residual"
    title = "ResiDual"
    gist = "Post-LN, plus the norm of a sum of all F"
    citation = "Xie et al. 2023, arXiv:2304.14802, section 3"
    year = 2023
    streams = ("x", "r")
    norm_epsilon = 1e-7

    def start(self, x: Value, end: End) -> _Streams:
        return x, x

    def join(self, x: _Streams, sublayer: Sublayer, norm: Norms) -> _Streams:
        stream, total = x
        branch = sublayer(stream)
        return norm(stream + branch), total + branch

    def finish(self, state: _Streams, end: End) -> Value:
        stream, total = state
        return stream + end.norm(total)


@register
class SiameseNorm(Placement):
    """x ← LN(x); z = F(LN(x + LN(y))); x ← x + z/√(2l); y ← y + z; out LN(LN(x) + LN(y)), l the
    block, from 1.

    Li et al. 2026 as in the authors' DeiT code (`deit-model-siamesenorm.py`), from which we read
    it: the paper's text was not at hand. Every LN is one of its own, both streams start from the
    embedding, and the 2 is there whatever the block holds, as it is here where a decoder attends to
    an encoder.
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
        self.roots = [
            Constant(math.sqrt(2 * block), "√(2l)") for block in range(1, stack.blocks + 1)
        ]

    def start(self, x: Value, end: End) -> _Streams:
        return x, x

    def join(self, x: _Streams, sublayer: Sublayer, norm: Norms) -> _Streams:
        post, pre = x
        post = norm.post(post)
        branch = sublayer(norm.input(post + norm.pre(pre)))
        return self.added(post, pre, branch, sublayer)

    def added(self, post: Value, pre: Value, branch: Value, sublayer: Sublayer) -> _Streams:
        """Adds the branch of a sub-layer to both streams, smaller with depth in the Post-LN one."""
        return post + branch / self.roots[sublayer.site.block - 1], pre + branch

    def finish(self, state: _Streams, end: End) -> Value:
        post, pre = state
        return end.norm(end.norm.post(post) + end.norm.pre(pre))


@register
class SiameseNormHybrid(SiameseNorm):
    """A variant of `siamese-norm` with attention that has HybridNorm's inner norms in place of
    those around x: z = A(s · x + LN(y)).

    The authors' language model (`OLMo_model_hybrid_pre.py`), in which attention neither norms x nor
    its input, and s is a vector that starts at 1. Its queries, keys and values are normed by head,
    as in the code for the heads' width (the published file leaves to a configuration whether they
    are). Cross-attention, which it has not, is as attention.
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


@register
class X0Residual(Placement):
    """x_0 = LN(embedding); x ← x_scale · x + x0_scale · x_0 before every block; x ← x + F(LN(x)); y
    = LN(x).

    nanochat's gpt.py (Karpathy 2025), as of July 2026: both are trained, x_scale from 1.15 in the
    first block to 1.05 in the last, x0_scale from 0.20 to 0.05, in a straight line. Of the same
    file, value embeddings, the mixing with the token before and the middle of the stack taken off
    its end are left out; its norms have no gains, and its last matrices start at 0, where these are
    drawn as its other matrices are, with variance 1/d.
    """

    name = "x0-residual"
    title = "x0 residual"
    gist = "Pre-LN, the embedding added at every block"
    citation = "Karpathy 2025, nanochat, gpt.py"
    year = 2025
    streams = ("x", "x_0")
    initialisation = "normal-by-width"

    def scales(self, block: int) -> tuple[float, float]:
        """Returns the initial x_scale and x0_scale of a block, counted from 1."""
        way = (block - 1) / max(self.stack.blocks - 1, 1)
        return 1.15 - 0.10 * way, 0.20 - 0.15 * way

    def start(self, x: Value, end: End) -> _Streams:
        normed = end.norm(x)
        return normed, normed

    def block(self, state: State, sublayers: Sequence[Sublayer]) -> _Streams:
        stream, embedding = state
        first = sublayers[0]
        of_stream, of_embedding = self.scales(first.site.block)
        stream = first.parameter("x_scale", initial=of_stream) * stream
        stream = stream + first.parameter("x0_scale", initial=of_embedding) * embedding
        for sublayer in sublayers:
            stream = self.join(stream, sublayer, sublayer.norm)
        return stream, embedding

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + sublayer(norm(x))

    def finish(self, state: State, end: End) -> Value:
        stream, _ = state
        return end.norm(stream)


@register
class X0ResidualModded(X0Residual):
    """A variant of `x0-residual` with x_scale 1 and x0_scale 0 at first: modded-nanogpt's, where
    the idea was first tried.

    Jordan et al. 2024, record of 4 December. The repository's later records scale every sub-layer
    and its branch, and since 2026 by numbers that depend on the token.
    """

    name = "x0-residual-modded"
    title = "x0 residual, modded-nanogpt"
    gist = "x0-residual, its weight 0 at first"
    citation = "Jordan et al. 2024, modded-nanogpt, record of 4 December 2024"
    year = 2024
    variant_of = "x0-residual"

    def scales(self, block: int) -> tuple[float, float]:
        return 1.0, 0.0
