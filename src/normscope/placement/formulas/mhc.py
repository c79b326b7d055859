"""Manifold-constrained hyper-connections: four residual streams that every token reads and mixes by its own weights."""

import math
from collections.abc import Sequence

from ..base import End, Initial, Norms, Placement, State, Sublayer, Value
from ..operations import Number, connect, doubly_stochastic, joined, sigmoid, weighed
from ..registry import register

STREAMS = 4
IDENTITY = tuple(1.0 if row == column else 0.0 for row in range(STREAMS) for column in range(STREAMS))


@register
class ManifoldHyperConnections(Placement):
    """h = Σ_i pre_i x_i; x_j ← Σ_i C_ij x_i + 2 post_j F(LN(h)); y = LN(Σ_i head_i x_i), from copies x_1 … x_4.

    Xie et al. 2025, section 4. pre, post and head are σ of logits and C is doubly stochastic (softmax of each row of
    logits, 20 rounds of Sinkhorn and Knopp). All logits are scale · (weight · r) + bias of what the token's streams
    are together, r = (x_1, …, x_4) over the RMS of all its features.

    Initial values are those of public code: scales of 0.01 (lucidrains/hyper-connections, and `hy_v4` of transformers;
    `mhc-deepseek-v4` has 1), and weights from N(0, 0.02²) (both of transformers). Were the weights 0, biases would make
    it Pre-LN: those of pre and head are -ln 3, which makes them means (as `hy_v4`), those of post 0, and those of C the
    identity matrix (as lucidrains/hyper-connections), which is any doubly stochastic matrix to streams that are equal.
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
        return tuple(weighed((*column, 2.0 * own), (*x, branch)) for column, own in zip(columns, post, strict=True))

    def finish(self, state: State, end: End) -> Value:
        return end.norm(weighed(self.shares(end, "head", joined(*state), self.mean_bias), state))

    def shares(self, of: End | Sublayer, name: str, read: Value, bias: float) -> Sequence[Number]:
        """A number between 0 and 1 for each stream."""
        found = [sigmoid(logit) for logit in self.logits(of, name, read, bias, STREAMS)]
        return [number + self.epsilon for number in found] if self.epsilon else found

    def logits(self, of: End | Sublayer, name: str, read: Value, bias: Initial, rows: int) -> Sequence[Number]:
        """`rows` numbers of a token."""
        weight = of.parameter(f"{name}_weight", initial=0.0, shape=(rows, STREAMS * self.stack.width), std=0.02)
        biases = of.parameter(f"{name}_bias", initial=bias, shape=(rows,))
        return connect(read, weight, biases, of.parameter(f"{name}_scale", initial=self.scale))


@register
class DeepSeekV4(ManifoldHyperConnections):
    """As `mhc`, with the initial values and the ε of DeepSeek-V4: scales of 1, biases of 0, and 10⁻⁶ added throughout.

    Logits then have a standard deviation of 0.02 √(4d), 0.9 at a width of 512 and 2.6 at 4,096, so that streams differ
    from the first sub-layer on, and what F reads is about twice their mean. transformers 5.23, `deepseek_v4`.
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
