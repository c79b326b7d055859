"""Independent hyper-connections: four residual streams that every token reads and writes, and that nothing mixes."""

from ..base import Norms, State, Sublayer
from ..operations import joined, sigmoid, weighed
from ..registry import register
from .mhc import ManifoldHyperConnections


@register
class IndependentHyperConnections(ManifoldHyperConnections):
    """h = Σ_i pre_i x_i; x_j ← x_j + 2 post_j F(LN(h)); y = LN(Σ_i head_i x_i), from copies x_1 … x_4.

    HY-V4 as transformers 5.23 has it (`hy_v4`), of which no paper is known: `mhc` without its mixing. pre, post and
    head are σ of the same logits, pre, head and 2 post with 10⁻⁶ added; they start as there, from weights N(0, 0.02²),
    scales of 0.01 and biases that make pre and head means. (Its code multiplies weight · x by 1 / RMS afterwards.)
    """

    name = "independent-hyper-connections"
    title = "Independent hyper-connections"
    gist = "4 streams, weights by token, never mixed"
    citation = "HY-V4, transformers 5.23 (github.com/huggingface/transformers), hy_v4"
    year = 2026
    epsilon = 1e-6

    def join(self, x: State, sublayer: Sublayer, norm: Norms) -> State:
        read = joined(*x)
        pre = self.shares(sublayer, "pre", read, self.mean_bias)
        post = self.logits(sublayer, "post", read, 0.0, len(x))
        branch = sublayer(norm(weighed(pre, x)))
        return tuple(stream + (2.0 * sigmoid(own) + self.epsilon) * branch for stream, own in zip(x, post, strict=True))
