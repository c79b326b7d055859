"""LayerScale: Pre-LN with a small trainable number for each feature of every branch."""

from ..base import End, Norms, Placement, StackShape, Sublayer, Value
from ..registry import register


@register
class LayerScale(Placement):
    """x ← x + λ · F(LN(x)); y = LN(x), λ a vector that starts at 0.1, 10⁻⁵ or 10⁻⁶ by the depth of the stack.

    Touvron et al. 2021 (CaiT), eq. 4: "0.1 until depth 18, 10⁻⁵ for depth 24 and 10⁻⁶ for deeper networks", depth
    counted in blocks; for 19 to 23 of them, of which the paper does not speak, we take 10⁻⁵. The same formula starts
    at 0.1 in BEiT and at 1 in DINOv2's configuration (Hugging Face transformers 5.23). Weights from N(0, 0.02²), there
    truncated.
    """

    name = "layer-scale"
    title = "LayerScale"
    gist = "Pre-LN, F times a small trained vector"
    citation = "Touvron et al. 2021, arXiv:2103.17239, eq. 4"
    year = 2021
    initialisation = "normal-0.02"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        self.initial = 0.1 if stack.blocks <= 18 else 1e-5 if stack.blocks <= 24 else 1e-6

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        scale = sublayer.parameter("layer_scale", initial=self.initial, shape=(self.stack.width,))
        return x + scale * sublayer(norm(x))

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)
