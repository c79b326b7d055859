"""Scaled residual: Pre-LN whose stream, and in one form whose branches, pass a trainable scale for each feature."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..registry import register


@register
class ScaledResidual(Placement):
    """x ← s · (x + b) + s' · (F(LN(x)) + b'), the embedding first times s plus its own b; y = LN(x).

    ZAYA1's residual scaling, as in Hugging Face transformers 5.23 (`ZayaResidualScaling`, and the two numbers that its
    model applies to the embedding): all four are vectors, scales start at 1 and biases at 0, so that the model starts
    as Pre-LN. Its mixture of experts and its convolutions in attention are no part of the placement.
    """

    name = "zaya"
    title = "Scaled residual"
    gist = "Pre-LN, x and F each scaled and shifted"
    citation = "Zyphra 2025, ZAYA1, as in Hugging Face transformers 5.23, modeling_zaya.py"
    year = 2025
    initialisation = "normal-0.02"

    def start(self, x: Value, end: End) -> Value:
        width = (self.stack.width,)
        shifted = x + end.parameter("bias", initial=0.0, shape=width)
        return end.parameter("scale", initial=1.0, shape=width) * shifted

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        width = (self.stack.width,)
        branch = sublayer(norm(x)) + sublayer.parameter("branch_bias", initial=0.0, shape=width)
        branch = sublayer.parameter("branch_scale", initial=1.0, shape=width) * branch
        shifted = x + sublayer.parameter("skip_bias", initial=0.0, shape=width)
        return sublayer.parameter("skip_scale", initial=1.0, shape=width) * shifted + branch

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)


@register
class Doge(ScaledResidual):
    """As `zaya`, the stream alone is scaled, and nothing is added to it: x ← s · x + F(LN(x)); y = LN(x).

    Doge in Hugging Face transformers 5.23, where s is `input_residual` before attention's sum and
    `post_attention_residual` before the feed-forward's, both 1 at first.
    """

    name = "doge"
    title = "Scaled residual, skip only"
    gist = "Pre-LN, x times a trained vector"
    citation = "Shi et al. 2025, Doge, as in Hugging Face transformers 5.23, modeling_doge.py"
    variant_of = "zaya"

    def start(self, x: Value, end: End) -> Value:
        return x

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        scale = sublayer.parameter("skip_scale", initial=1.0, shape=(self.stack.width,))
        return scale * x + sublayer(norm(x))
