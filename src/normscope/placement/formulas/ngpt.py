"""nGPT: a stream on a sphere, moved by learned steps, with weights of unit length."""

import math
from types import MappingProxyType

from ..base import Constant, End, Norms, Placement, StackShape, Sublayer, Value
from ..registry import register


@register
class NGPT(Placement):
    """x ← n(x + step · (n(F(x)) - x)), x_0 = n(embedding), with queries and keys normed and matrices of unit vectors.

    Loshchilov et al. 2024, sections 2.2 to 2.6. There n(x) = x / ‖x‖; here n puts x on the sphere of radius √d, which
    is the same function with √d taken out of `s_u` and of the logits, and lets LayerNorm or RMSNorm stand for n. After
    every update each matrix's vectors of the stream's width are put back to length 1. `step` starts at 0.05, `s_qk`,
    `s_u` and `s_z` (one logit scale per entry) at 1; all but `s_u` are stored at 1/√d, which sets how fast Adam moves
    them. Where nGPT has rotary positions, our sinusoids join the embedding before the first n. Its feed-forward is
    gated; ours has `s_u` alone. The authors' code takes the step's absolute value; we do not. It also has an output
    projection apart from the embedding (`lm_head`, left untied "because in the nGPT paper there was no weight tying")
    and no bias anywhere; our models tie the two, and every matrix of F has a bias, as under all other placements,
    which starts at 0 and is no part of what is put back to length 1.
    """

    name = "ngpt"
    title = "nGPT"
    gist = "unit vectors, moved by learned steps"
    citation = "Loshchilov et al. 2024, arXiv:2410.01131, sections 2.2 to 2.6"
    year = 2024
    initialisation = "normal-by-width"
    default_norm = "sphere-norm"
    norm_epsilon = 1e-12
    unit_vectors = MappingProxyType(
        {"embedding": 1, "query": 1, "key": 1, "value": 1, "ffn_in": 1, "output": 0, "ffn_out": 0}
    )

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        if stack.key_value_heads or stack.head_width:
            raise ValueError(
                "placement 'ngpt' scales queries and keys by one vector of the model's width: leave "
                "attention.key_value_heads and attention.head_width as they are"
            )
        self.sqrt_width = math.sqrt(stack.width)
        # Made once: torch.compile can read a named constant, and not make one.
        self.scales = {0.05: Constant(0.05 * self.sqrt_width, "0.05√d"), 1.0: Constant(self.sqrt_width, "√d")}

    def start(self, x: Value, end: End) -> Value:
        return end.norm(x)

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        step = self._stored(sublayer, "step", 0.05)
        return norm(x + step * (norm.branch(self._branch(x, sublayer, norm)) - x))

    def _branch(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        if sublayer.site.kind == "feed_forward":
            s_u = sublayer.parameter("s_u", initial=1.0, shape=(self.stack.ffn_width or self.stack.width,))
            return sublayer(x, hidden=lambda u: s_u * u)
        s_qk, heads = self._stored(sublayer, "s_qk", 1.0), self.stack.heads
        return sublayer(
            x,
            query=lambda q: s_qk * norm.query(q, groups=heads),
            key=lambda k: s_qk * norm.key(k, groups=heads),
        )

    def _stored(self, sublayer: Sublayer, name: str, initial: float) -> Value:
        """A number for each feature that starts at `initial` and is stored at 1/√d."""
        return self.scales[initial] * sublayer.parameter(name, initial=1 / self.sqrt_width, shape=(self.stack.width,))

    def output_rows(self, rows: Value, head: End, vocabulary: int) -> Value:
        # The paper's logit s_z · (E x), with ‖x‖ = √d here and s_z stored at 1/√d.
        return rows * head.parameter("s_z", initial=1 / self.sqrt_width, shape=(vocabulary, 1))
