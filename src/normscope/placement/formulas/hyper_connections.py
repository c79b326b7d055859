"""Hyper-connections: four residual streams, read, mixed and written with weights that nothing constrains."""

from collections.abc import Sequence

from ..base import End, Norms, Placement, State, Sublayer, Value
from ..operations import Number, connect, tanh, weighed
from ..registry import register

STREAMS = 4
_Weights = Sequence[Sequence[Number]]


@register
class HyperConnections(Placement):
    """h = Σ_i a_i0 x_i; x_j ← Σ_i a_ij x_i + b_j F(LN(h)); y = LN(Σ_i x_i), from copies x_1 … x_4 of the embedding.

    Zhu et al. 2024, section 2 and appendix J: a_ij = alpha_ij + alpha_scale · tanh(alpha_weight · LN(x_i))_j, and b_i
    = beta_i + beta_scale · tanh(beta_weight · LN(x_i)). Weights start at 0 and their scales at 0.01. alpha starts so
    that the sub-layers of a stack read one stream after the other, from the first, and mix none, and beta at 1: at
    first this is Pre-LN, up to ε in the final norm, since streams that are equal stay so.
    """

    name = "hyper-connections"
    title = "Hyper-connections"
    gist = "4 streams, mixed by weights of each token"
    citation = "Zhu et al. 2024, arXiv:2409.19606, section 2"
    year = 2024
    streams = ("x1", "x2", "x3", "x4")
    initialisation = "normal-0.02"

    def start(self, x: Value, end: End) -> State:
        return (x,) * STREAMS

    def join(self, x: State, sublayer: Sublayer, norm: Norms) -> State:
        read = (sublayer.site.number - 1) % STREAMS
        first = tuple((float(i == read), *(float(i == j) for j in range(STREAMS))) for i in range(STREAMS))
        alpha = sublayer.parameter("alpha", initial=first, shape=(STREAMS, STREAMS + 1))
        beta = sublayer.parameter("beta", initial=1.0, shape=(STREAMS,))
        own, written = self.connected(x, sublayer, norm, alpha, beta)
        branch = sublayer(norm(weighed([row[0] for row in own], x)))
        return tuple(weighed((*(row[j + 1] for row in own), written[j]), (*x, branch)) for j in range(STREAMS))

    def connected(
        self, x: State, sublayer: Sublayer, norm: Norms, alpha: Value, beta: Value
    ) -> tuple[_Weights, Sequence[Number]]:
        """The weights a and b of every token."""
        alpha_weight = sublayer.parameter("alpha_weight", initial=0.0, shape=(STREAMS + 1, self.stack.width))
        beta_weight = sublayer.parameter("beta_weight", initial=0.0, shape=(1, self.stack.width))
        alpha_scale = sublayer.parameter("alpha_scale", initial=0.01)
        beta_scale = sublayer.parameter("beta_scale", initial=0.01)
        a, b = [], []
        for i, stream in enumerate(x):
            read = norm.streams(stream)
            moved = connect(read, alpha_weight, name=f"a{i + 1}")
            a.append([alpha[i][j] + alpha_scale * tanh(number) for j, number in enumerate(moved)])
            (moved_beta,) = connect(read, beta_weight, name=f"b{i + 1}")
            b.append(beta[i] + beta_scale * tanh(moved_beta))
        return a, b

    def finish(self, state: State, end: End) -> Value:
        first, *others = state
        for other in others:
            first = first + other
        return end.norm(first)


@register
class StaticHyperConnections(HyperConnections):
    """As `hyper-connections`, with the numbers alpha and beta alone: weights are the same for every token.

    Zhu et al. 2024, section 2.1.
    """

    name = "hyper-connections-static"
    title = "Hyper-connections, static"
    gist = "4 streams, mixed by trained weights"
    citation = "Zhu et al. 2024, arXiv:2409.19606, section 2.1"
    variant_of = "hyper-connections"

    def connected(
        self, x: State, sublayer: Sublayer, norm: Norms, alpha: Value, beta: Value
    ) -> tuple[_Weights, Sequence[Number]]:
        return [[alpha[i][j] for j in range(STREAMS + 1)] for i in range(STREAMS)], [beta[i] for i in range(STREAMS)]
