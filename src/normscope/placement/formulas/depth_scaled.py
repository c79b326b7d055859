"""Depth-scaled sum: weights whose squares add up to 1, so that the stream's mean square stays where it starts."""

import math

from ..base import Constant, End, Norms, Placement, StackShape, Sublayer, Value
from ..registry import register


@register
class DepthScaled(Placement):
    """x ← √((k-1)/k) · x + LN(F(LN(x))) / √k; y = LN(x), k the number of the sub-layer plus 1.

    Beam's `depth_scaled_residual_add` in Hugging Face transformers 5.23, where k is 2 (l + 1) for the attention of
    layer l, counted from 0, and one more for its feed-forward: after n sub-layers x is (x_0 + Σ LN(F))/√(n + 1), a
    plain sum over its own size. Since every reader of x norms it, outputs are those of `sandwich` at equal weights, but
    for ε; the stream alone does not grow. In a decoder that attends to an encoder, which Beam has not, k counts
    cross-attention too. Beam norms by the RMS and draws its weights from N(0, 0.02²); there is no paper.
    """

    name = "depth-scaled"
    title = "Depth-scaled sum"
    gist = "norms around F, mean square of x kept"
    citation = "Beam, as in Hugging Face transformers 5.23, modeling_beam.py"
    year = 2026
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        # Made once: torch.compile can read a named constant, and not make one.
        self.scales = [
            (Constant(math.sqrt((k - 1) / k), "√((k - 1)/k)"), Constant(math.sqrt(k), "√k"))
            for k in range(2, stack.sublayers + 2)
        ]

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        skip_scale, root = self.scales[sublayer.site.number - 1]
        return skip_scale * x + norm.after(sublayer(norm.before(x))) / root

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)
