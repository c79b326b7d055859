"""Gated multi-stream: four residual streams that are normed apart, and read through a gate for each feature."""

from collections.abc import Sequence

from ..base import End, Norms, Placement, State, Sublayer, Value
from ..operations import beside, connect, sigmoid, silu, weighed
from ..registry import register

STREAMS = 4


@register
class GatedMultiStream(Placement):
    """h = Σ_i σ(gate_i) ⊙ LN_i(x_i) / 4; x_j ← x_j + 2 σ(write_j) F(h); y as h, from copies x_1 … x_4.

    Qwen4-exp as transformers 5.23 has it (`qwen4_exp`, `Qwen4ExpTextGatedResidual`), of which no paper is known. With r
    the four normed streams side by side, write = write_weight · r / 4 has a number for each stream, and
    gate = up_weight · silu(down_weight · r / 4) one for each of their features, over a rank of 5/32 of the width (320
    of 2,048). F reads no other norm, and the stack ends with such a mean. All weights are drawn from N(0, 0.02²): at
    first F reads about half a norm. (Its model adds embeddings of n-grams to the streams, which are no part of this.)
    """

    name = "gated-multi-stream"
    title = "Gated multi-stream"
    gist = "4 normed streams, read and written by gates"
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
        return tuple(stream + 2.0 * sigmoid(own) * branch for stream, own in zip(x, write, strict=True))

    def finish(self, state: State, end: End) -> Value:
        return self.mean(self.normed(state, end.norm), end)

    def normed(self, x: State, norm: Norms) -> Sequence[Value]:
        """Every stream by a norm of its own."""
        return [getattr(norm, name)(stream) for name, stream in zip(self.streams, x, strict=True)]

    def mean(self, normed: Sequence[Value], of: End | Sublayer) -> Value:
        """Of normed streams, each times its gate."""
        width = self.stack.width
        rank = max(1, 5 * width // 32)
        down_weight = of.parameter("down_weight", initial=0.0, shape=(1, rank, STREAMS * width), std=0.02)
        up_weight = of.parameter("up_weight", initial=0.0, shape=(STREAMS, width, rank), std=0.02)
        (low,) = connect(beside(*normed), down_weight, scale=1 / STREAMS, name="low")
        gates = connect(silu(low), up_weight, name="gate")
        return weighed([sigmoid(gate) for gate in gates], normed) / STREAMS
