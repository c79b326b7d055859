"""A gate for each feature between stream and branch, whose two weights keep the variance of what they weigh."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..operations import sigmoid
from ..registry import register


@register
class VariancePreservingGate(Placement):
    """x ← √(1 - β²) · x + β · norm(F(norm(x))), β = σ(gate / 0.3), a gate for each feature; y = norm(x).

    Muse Spark as transformers 5.23 has it (`muse_spark`, `MuseSparkResidualGate`), of which no paper is known: a stream
    of variance 1 keeps it. Gates are drawn from N(0, 0.02²), as the family's weights. Its code writes 1 - β² as
    σ(-gate / 0.3) (1 + β) and lets it fall to 0.001 at most, which a gate above 2.3 alone would reach; we do not.
    """

    name = "variance-gate"
    title = "Variance-preserving gate"
    gist = "β weighs F, √(1 - β²) weighs x, F normed"
    citation = "Muse Spark, transformers 5.23 (github.com/huggingface/transformers), muse_spark"
    year = 2026
    initialisation = "normal-0.02"
    temperature = 0.3

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        gate = sublayer.parameter("gate", initial=0.0, shape=(self.stack.width,), std=0.02)
        beta = sigmoid(gate / self.temperature)
        return (1.0 - beta * beta) ** 0.5 * x + beta * norm.after(sublayer(norm.before(x)))

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)
