"""ResiDual: a Post-LN stream and an un-normalised sum of all branches beside it."""

from ..base import End, Norms, Placement, Sublayer, Value
from ..registry import register


@register
class ResiDual(Placement):
    """x ← LN(x + F(x)), r ← r + F(x), both from the embedding; y = x + LN(r).

    Xie et al. 2023, section 3 (there: dual residual x^ln and x^d), with LayerNorm epsilon 1e-7 as in the authors' code.
    """

    name = "residual"
    title = "ResiDual"
    gist = "Post-LN, plus the norm of a sum of all F"
    citation = "Xie et al. 2023, arXiv:2304.14802, section 3"
    year = 2023
    streams = ("x", "r")
    norm_epsilon = 1e-7

    def start(self, x: Value, end: End) -> tuple[Value, Value]:
        return x, x

    def join(self, x: tuple[Value, Value], sublayer: Sublayer, norm: Norms) -> tuple[Value, Value]:
        stream, total = x
        branch = sublayer(stream)
        return norm(stream + branch), total + branch

    def finish(self, state: tuple[Value, Value], end: End) -> Value:
        stream, total = state
        return stream + end.norm(total)
