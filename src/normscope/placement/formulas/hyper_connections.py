"""Four residual streams that every sub-layer reads, mixes and writes by weights, mostly of each
token.
"""

import math
from collections.abc import Sequence

from ..base import End, Initial, Norms, Placement, State, Sublayer, Value
from ..operations import (
    Number,
    beside,
    connect,
    doubly_stochastic,
    joined,
    sigmoid,
    silu,
    tanh,
    weighed,
)
from ..registry import register

STREAMS = 4
_Weights = Sequence[Sequence[Number]]


def _first_weights(read: int) -> tuple[tuple[float, ...], ...]:
    """Returns alpha as it starts in a sub-layer that reads the stream `read`, a row a stream: its
    weight in what is read, then in what each stream becomes. Every stream stays itself.

    `_first_weights(1)` starts (0, 1, 0, 0, 0), (1, 0, 1, 0, 0).
    """
    rows = []
    for stream in range(STREAMS):
        row = [float(stream == read)]
        row += [float(stream == other) for other in range(STREAMS)]
        rows.append(tuple(row))
    return tuple(rows)


@register
class HyperConnections(Placement):
    """h = Σ_i a_i0 x_i; x_j ← Σ_i a_ij x_i + b_j F(LN(h)); y = LN(Σ_i x_i), from copies x_1 … x_4
    of the embedding.

    Zhu et al. 2024, section 2 and appendix J: a_ij = alpha_ij + alpha_scale · tanh(alpha_weight ·
    LN(x_i))_j, and b_i = beta_i + beta_scale · tanh(beta_weight · LN(x_i)). Weights start at 0 and
    their scales at 0.01. alpha starts so that the sub-layers of a stack read one stream after the
    other, from the first, and mix none, and beta at 1: at first this is Pre-LN, up to ε in the
    final norm, since streams that are equal stay so.
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
        alpha = sublayer.parameter(
            "alpha", initial=_first_weights(read), shape=(STREAMS, STREAMS + 1)
        )
        beta = sublayer.parameter("beta", initial=1.0, shape=(STREAMS,))
        own, written = self.connected(x, sublayer, norm, alpha, beta)
        branch = sublayer(norm(weighed([row[0] for row in own], x)))
        streams = []
        for stream in range(STREAMS):
            kept = [row[stream + 1] for row in own]
            streams.append(weighed((*kept, written[stream]), (*x, branch)))
        return tuple(streams)

    def connected(
        self, x: State, sublayer: Sublayer, norm: Norms, alpha: Value, beta: Value
    ) -> tuple[_Weights, Sequence[Number]]:
        """Returns the weights a and b of every token."""
        alpha_weight = sublayer.parameter(
            "alpha_weight", initial=0.0, shape=(STREAMS + 1, self.stack.width)
        )
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
    """A variant of `hyper-connections` with the numbers alpha and beta alone: weights are the same
    for every token.

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
        own = []
        for stream in range(STREAMS):
            row = alpha[stream]
            own.append([row[column] for column in range(STREAMS + 1)])
        return own, [beta[stream] for stream in range(STREAMS)]


IDENTITY = tuple(
    1.0 if row == column else 0.0 for row in range(STREAMS) for column in range(STREAMS)
)


@register
class ManifoldHyperConnections(Placement):
    """h = Σ_i pre_i x_i; x_j ← Σ_i C_ij x_i + 2 post_j F(LN(h)); y = LN(Σ_i head_i x_i), from
    copies x_1 … x_4.

    Xie et al. 2025, section 4. pre, post and head are σ of logits and C is doubly stochastic
    (softmax of each row of logits, 20 rounds of Sinkhorn and Knopp). All logits are scale · (weight
    · r) + bias of what the token's streams are together, r = (x_1, …, x_4) over the RMS of all its
    features.

    Initial values are those of public code: scales of 0.01 (lucidrains/hyper-connections, and
    `hy_v4` of transformers; `mhc-deepseek-v4` has 1), and weights from N(0, 0.02²) (both of
    transformers). Were the weights 0, biases would make it Pre-LN: those of pre and head are -ln 3,
    which makes them means (as `hy_v4`), those of post 0, and those of C the identity matrix (as
    lucidrains/hyper-connections), which is any doubly stochastic matrix to streams that are equal.
    """

    name = "mhc"
    title = "Manifold-constrained hyper-connections"
    gist = "4 streams, mixed doubly stochastically"
    citation = "Xie et al. 2025, arXiv:2512.24880, section 4"
    year = 2025
    streams = ("x1", "x2", "x3", "x4")
    initialisation = "normal-0.02"
    epsilon: float = 0.0
    """Added to pre and head."""
    mixing_epsilon: float = 0.0
    """Added to C after its softmax, and to every sum that it is divided by."""
    mean_bias: float = -math.log(STREAMS - 1)
    mixing_bias: Initial = IDENTITY
    scale: float = 0.01

    def start(self, x: Value, end: End) -> State:
        return (x,) * STREAMS

    def join(self, x: State, sublayer: Sublayer, norm: Norms) -> State:
        read = joined(*x)
        pre = self.shares(sublayer, "pre", read, self.mean_bias)
        post = [sigmoid(logit) for logit in self.logits(sublayer, "post", read, 0.0, STREAMS)]
        logits = self.logits(sublayer, "C", read, self.mixing_bias, STREAMS**2)
        mixing = doubly_stochastic(logits, rounds=20, epsilon=self.mixing_epsilon)
        branch = sublayer(norm(weighed(pre, x)))
        columns = zip(*mixing, strict=True)
        return tuple(
            weighed((*column, 2.0 * own), (*x, branch))
            for column, own in zip(columns, post, strict=True)
        )

    def finish(self, state: State, end: End) -> Value:
        return end.norm(weighed(self.shares(end, "head", joined(*state), self.mean_bias), state))

    def shares(self, of: End | Sublayer, name: str, read: Value, bias: float) -> Sequence[Number]:
        """Returns a number between 0 and 1 for each stream."""
        found = [sigmoid(logit) for logit in self.logits(of, name, read, bias, STREAMS)]
        return [number + self.epsilon for number in found] if self.epsilon else found

    def logits(
        self, of: End | Sublayer, name: str, read: Value, bias: Initial, rows: int
    ) -> Sequence[Number]:
        """`rows` numbers of a token."""
        weight = of.parameter(
            f"{name}_weight", initial=0.0, shape=(rows, STREAMS * self.stack.width), std=0.02
        )
        biases = of.parameter(f"{name}_bias", initial=bias, shape=(rows,))
        return connect(read, weight, biases, of.parameter(f"{name}_scale", initial=self.scale))


@register
class DeepSeekV4(ManifoldHyperConnections):
    """A variant of `mhc` with the initial values and the ε of DeepSeek-V4: scales of 1, biases of
    0, and 10⁻⁶ added throughout.

    Logits then have a standard deviation of 0.02 √(4d), 0.9 at a width of 512 and 2.6 at 4,096, so
    that streams differ from the first sub-layer on, and what F reads is about twice their mean.
    transformers 5.23, `deepseek_v4`.
    """

    name = "mhc-deepseek-v4"
    title = "Manifold-constrained hyper-connections, DeepSeek-V4's initial values"
    gist = "mhc with DeepSeek-V4's initial values"
    citation = "DeepSeek-V4, transformers 5.23 (github.com/huggingface/transformers), deepseek_v4"
    year = 2026
    variant_of = "mhc"
    mean_bias = 0.0
    mixing_bias = 0.0
    scale = 1.0
    epsilon = mixing_epsilon = 1e-6


@register
class IndependentHyperConnections(ManifoldHyperConnections):
    """h = Σ_i pre_i x_i; x_j ← x_j + 2 post_j F(LN(h)); y = LN(Σ_i head_i x_i), from copies x_1 …
    x_4.

    HY-V4 as transformers 5.23 has it (`hy_v4`), of which no paper is known: `mhc` without its
    mixing. pre, post and head are σ of the same logits, pre, head and 2 post with 10⁻⁶ added; they
    start as there, from weights N(0, 0.02²), scales of 0.01 and biases that make pre and head
    means. (Its code multiplies weight · x by 1 / RMS afterwards.)
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
        return tuple(
            stream + (2.0 * sigmoid(own) + self.epsilon) * branch
            for stream, own in zip(x, post, strict=True)
        )


@register
class GatedMultiStream(Placement):
    """h = Σ_i σ(gate_i) ⊙ LN_i(x_i) / 4; x_j ← x_j + 2 σ(write_j) F(h); y as h, from copies x_1 …
    x_4.

    Qwen4-exp as transformers 5.23 has it (`qwen4_exp`, `Qwen4ExpTextGatedResidual`), of which no
    paper is known. With r the four normed streams side by side, write = write_weight · r / 4 has a
    number for each stream, and gate = up_weight · silu(down_weight · r / 4) one for each of their
    features, over a rank of 5/32 of the width (320 of 2,048). F reads no other norm, and the stack
    ends with such a mean. All weights are drawn from N(0, 0.02²): at first F reads about half a
    norm. (Its model adds embeddings of n-grams to the streams, which are no part of this.)
    """

    name = "gated-multi-stream"
    title = "Gated multi-stream"
    gist = "4 normalised streams, gates read and write"
    citation = "Qwen4-exp, transformers 5.23 (github.com/huggingface/transformers), qwen4_exp"
    year = 2026
    streams = ("x1", "x2", "x3", "x4")
    initialisation = "normal-0.02"
    norm_epsilon = 1e-6

    def start(self, x: Value, end: End) -> State:
        return (x,) * STREAMS

    def join(self, x: State, sublayer: Sublayer, norm: Norms) -> State:
        normed = self.normed(x, norm)
        write_weight = sublayer.parameter(
            "write_weight", initial=0.0, shape=(STREAMS, STREAMS * self.stack.width), std=0.02
        )
        write = connect(beside(*normed), write_weight, scale=1 / STREAMS)
        branch = sublayer(self.mean(normed, sublayer))
        return tuple(
            stream + 2.0 * sigmoid(own) * branch for stream, own in zip(x, write, strict=True)
        )

    def finish(self, state: State, end: End) -> Value:
        return self.mean(self.normed(state, end.norm), end)

    def normed(self, x: State, norm: Norms) -> Sequence[Value]:
        """Returns every stream normed, each by a norm of its own."""
        return [getattr(norm, name)(stream) for name, stream in zip(self.streams, x, strict=True)]

    def mean(self, normed: Sequence[Value], of: End | Sublayer) -> Value:
        """Returns the mean of normed streams, each times its gate."""
        width = self.stack.width
        rank = max(1, 5 * width // 32)
        down_weight = of.parameter(
            "down_weight", initial=0.0, shape=(1, rank, STREAMS * width), std=0.02
        )
        up_weight = of.parameter("up_weight", initial=0.0, shape=(STREAMS, width, rank), std=0.02)
        (low,) = connect(beside(*normed), down_weight, scale=1 / STREAMS, name="low")
        gates = connect(silu(low), up_weight, name="gate")
        return weighed([sigmoid(gate) for gate in gates], normed) / STREAMS
