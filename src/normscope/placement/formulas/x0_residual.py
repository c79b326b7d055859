"""x0 residual: before every block the stream is scaled and takes up some of the normed embedding again."""

from collections.abc import Sequence

from ..base import End, Norms, Placement, State, Sublayer, Value
from ..registry import register

_Streams = tuple[Value, Value]


@register
class X0Residual(Placement):
    """x_0 = LN(embedding); x ← x_scale · x + x0_scale · x_0 before every block; x ← x + F(LN(x)); y = LN(x).

    nanochat's gpt.py (Karpathy 2025), as of July 2026: both are trained, x_scale from 1.15 in the first block to 1.05
    in the last, x0_scale from 0.20 to 0.05, in a straight line. Of the same file, value embeddings, the mixing with the
    token before and the middle of the stack taken off its end are left out; its norms have no gains, and its last
    matrices start at 0, where these are drawn as its other matrices are, with variance 1/d.
    """

    name = "x0-residual"
    title = "x0 residual"
    gist = "Pre-LN, the embedding added at every block"
    citation = "Karpathy 2025, nanochat, gpt.py"
    year = 2025
    streams = ("x", "x_0")
    initialisation = "normal-by-width"

    def scales(self, block: int) -> tuple[float, float]:
        """Where x_scale and x0_scale of a block, counted from 1, start."""
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
    """As `x0-residual`, x_scale 1 and x0_scale 0 at first: modded-nanogpt's, where the idea was first tried.

    Jordan et al. 2024, record of 4 December. The repository's later records scale every sub-layer and its branch, and
    since 2026 by numbers that depend on the token.
    """

    name = "x0-residual-modded"
    title = "x0 residual, modded-nanogpt"
    gist = "x0-residual, its weight 0 at first"
    citation = "Jordan et al. 2024, modded-nanogpt, record of 4 December 2024"
    year = 2024
    variant_of = "x0-residual"

    def scales(self, block: int) -> tuple[float, float]:
        return 1.0, 0.0
