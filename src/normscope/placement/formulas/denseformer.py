"""DenseFormer: after every block, a learned weighted sum of its output, all outputs before it and the embedding."""

from collections.abc import Sequence

from ..base import End, Placement, Site, State, Sublayer, Value, residual_gain
from ..operations import weighed
from ..registry import register

_History = tuple[Value, ...]


@register
class DenseFormer(Placement):
    """After a block's Pre-LN sub-layers v gains x; x ← Σ_i weights_i · v_i, v_0 the embedding; y = LN(x).

    Pagliardini et al. 2024, section 3.1: a depth-weighted average after every block (dilation 1, period 1). The last
    weight starts at 1 and all others at 0, so that the model starts as Pre-LN. Blocks are averaged, not sub-layers, and
    v keeps what leaves a block before it is averaged. Weights as in the authors' experiments, GPT-2's.
    """

    name = "denseformer"
    title = "DenseFormer"
    gist = "Pre-LN, blocks end in a sum of all outputs"
    citation = "Pagliardini et al. 2024, arXiv:2402.02622, section 3.1"
    year = 2024
    streams = ("x", "v")
    initialisation = "normal-0.02"

    def start(self, x: Value, end: End) -> tuple[Value, _History]:
        return x, (x,)

    def block(self, state: State, sublayers: Sequence[Sublayer]) -> tuple[Value, _History]:
        x, history = state
        for sublayer in sublayers:
            x = x + sublayer(sublayer.norm(x))
        history = (*history, x)
        size = len(history)
        weights = sublayers[-1].parameter("weights", initial=(*[0.0] * (size - 1), 1.0), shape=(size,))
        return weighed([weights[i] for i in range(size)], history), history

    def finish(self, state: State, end: End) -> Value:
        x, _ = state
        return end.norm(x)

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)
