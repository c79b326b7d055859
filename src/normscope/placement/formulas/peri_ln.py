"""Peri-LN: a norm on the embedding, and before and after every branch."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..registry import register


@register
class PeriLN(Placement):
    """x_0 = LN(embedding); x ← x + LN(F(LN(x))); y = LN(x).

    Kim et al. 2025, section 3. The paper calls the embedding's norm optional; without it the formula is `sandwich`,
    which is also Gemma 2's. Its weights' initial scale is not stated; N(0, 0.02²) is that of OLMo-core's Peri-LN block.
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

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)
