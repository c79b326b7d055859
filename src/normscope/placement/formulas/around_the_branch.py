"""Norms after the branch, and most often before it, too: what is added to the stream is normed."""

import math

from ..base import Constant, End, Norms, Site, StackShape, Sublayer, Value, residual_gain
from ..operations import sigmoid
from ..registry import register
from .pre_and_post import PreLN


@register
class ReorderedNorm(PreLN):
    """x ← x + LN(F(x)); y = LN(x).

    OLMo team 2025 (OLMo 2), section 3.2; before it Liu et al. 2021 (Swin v2, "res-post-norm").
    Weights from N(0, 0.02²).
    """

    name = "reordered"
    title = "Reordered norm"
    citation = "OLMo et al. 2025 (OLMo 2), arXiv:2501.00656, section 3.2"
    year = 2025
    initialisation = "normal-0.02"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + norm(sublayer(x))


@register
class OLMo2(ReorderedNorm):
    """A variant of `reordered` with norms on queries and keys over their whole width: the released
    OLMo 2 models.
    """

    name = "olmo-2"
    title = "OLMo 2"
    gist = "norm after F, and on queries and keys"
    variant_of = "reordered"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind == "feed_forward":
            return x + norm(sublayer(x))
        return x + norm(sublayer(x, query=norm.query, key=norm.key))


@register
class SandwichLN(PreLN):
    """x ← x + LN(F(LN(x))); y = LN(x).

    Ding et al. 2021 (CogView), section 2.4, whose norm also divides its input by its largest
    element (against overflow in float16; no other effect). Weights as GPT-2's: N(0, 0.02²), the
    last matrix of each F over √(sub-layers). In a deep and narrow stack those make a branch's
    variance fall below the norm's epsilon, which then no longer brings it to 1.
    """

    name = "sandwich"
    title = "Sandwich-LN"
    gist = "norm before and after F"
    citation = "Ding et al. 2021 (CogView), arXiv:2105.13290, section 2.4"
    year = 2021
    initialisation = "normal-0.02"

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + norm.after(sublayer(norm.before(x)))

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)


@register
class PeriLN(PreLN):
    """x_0 = LN(embedding); x ← x + LN(F(LN(x))); y = LN(x).

    Kim et al. 2025, section 3. The paper calls the embedding's norm optional; without it the
    formula is `sandwich`, which is also Gemma 2's. Its weights' initial scale is not stated; N(0,
    0.02²) is that of OLMo-core's Peri-LN block.
    """

    name = "peri-ln"
    title = "Peri-LN"
    gist = "norm before and after F, and on embeddings"
    citation = "Kim et al. 2025, arXiv:2502.02732, section 3"
    year = 2025
    initialisation = "normal-0.02"

    def start(self, x: Value, end: End) -> Value:
        return end.norm(x)

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return x + norm.after(sublayer(norm.before(x)))


@register
class DepthScaled(PreLN):
    """x ← √((k-1)/k) · x + LN(F(LN(x))) / √k; y = LN(x), k the number of the sub-layer plus 1.

    Beam's `depth_scaled_residual_add` in Hugging Face transformers 5.23, where k is 2 (l + 1) for
    the attention of layer l, counted from 0, and one more for its feed-forward: after n sub-layers
    x is (x_0 + Σ LN(F))/√(n + 1), a plain sum over its own size. Since every reader of x norms it,
    outputs are those of `sandwich` at equal weights, but for ε; the stream alone does not grow. In
    a decoder that attends to an encoder, which Beam has not, k counts cross-attention too. Beam
    norms by the RMS and draws its weights from N(0, 0.02²); there is no paper.
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


@register
class VariancePreservingGate(PreLN):
    """x ← √(1 - β²) · x + β · norm(F(norm(x))), β = σ(gate / 0.3), a gate for each feature; y =
    norm(x).

    Muse Spark as transformers 5.23 has it (`muse_spark`, `MuseSparkResidualGate`), of which no
    paper is known: a stream of variance 1 keeps it. Gates are drawn from N(0, 0.02²), as the
    family's weights. Its code writes 1 - β² as σ(-gate / 0.3) (1 + β) and lets it fall to 0.001 at
    most, which a gate above 2.3 alone would reach; we do not.
    """

    name = "variance-gate"
    title = "Variance-preserving gate"
    gist = "β weighs F, normalised; √(1 - β²) weighs x"
    citation = "Muse Spark, transformers 5.23 (github.com/huggingface/transformers), muse_spark"
    year = 2026
    initialisation = "normal-0.02"
    temperature = 0.3

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        gate = sublayer.parameter("gate", initial=0.0, shape=(self.stack.width,), std=0.02)
        beta = sigmoid(gate / self.temperature)
        return (1.0 - beta * beta) ** 0.5 * x + beta * norm.after(sublayer(norm.before(x)))
