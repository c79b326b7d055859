"""Means over depth: what a sub-layer or a block reads is weighed of all that was computed below
it.
"""

import math
from collections.abc import Sequence

from ..base import End, Norms, Placement, Site, StackShape, State, Sublayer, Value, residual_gain
from ..operations import joined, mix, weighed
from ..registry import register

_History = tuple[Value, ...]


@register
class AttentionResiduals(Placement):
    """h = Σ_i softmax_i(query · LN(v_i)) v_i over the embedding v_0 and all branches; v gains
    F(LN(h)); y = LN(h_last).

    Kimi team 2026, section 3.1, eq. 2 to 4. Every sub-layer has a query, 0 at first, so that it
    starts from a plain mean, and a norm of its own for the keys; values are not normed. The output
    is one more such mean, with a query of its own, before the final norm.
    """

    name = "attn-res"
    title = "Attention residuals"
    gist = "each F reads a learned mean of all below it"
    citation = "Kimi team 2026, arXiv:2603.15031, section 3.1"
    year = 2026
    streams = ("h", "v")
    initialisation = "normal-0.02"

    def start(self, x: Value, end: End) -> tuple[Value, _History]:
        return x, (x,)

    def join(self, x: State, sublayer: Sublayer, norm: Norms) -> tuple[Value, _History]:
        _, history = x
        query = sublayer.parameter("query", initial=0.0, shape=(self.stack.width,))
        h = mix(query, history, norm.key)
        return h, self.extended(history, sublayer(norm(h)), sublayer)

    def extended(self, history: _History, branch: Value, sublayer: Sublayer) -> _History:
        """Returns the values that the next sub-layer reads."""
        return *history, branch

    def finish(self, state: State, end: End) -> Value:
        _, history = state
        query = end.parameter("query", initial=0.0, shape=(self.stack.width,))
        return end.norm(mix(query, history, end.norm.key))


@register
class BlockAttentionResiduals(AttentionResiduals):
    """A variant of `attn-res` over the sums of up to 8 groups of blocks: within a group, branches
    add up to one value.

    Section 3.2, eq. 5 and 6: the first sub-layer of a group reads the groups before it, the others
    also the sum so far. A group is ⌈L/8⌉ whole blocks, the last one what is left of L. The
    equations would let a group end inside a block; the authors' pseudo-code (figure 2) closes
    groups between blocks alone, and so do we: a stack of 12 blocks has 6 groups of 2 blocks, where
    groups of ⌈24/8⌉ = 3 sub-layers would cut every second block. Where 8 divides the number of
    blocks the two readings are one.
    """

    name = "attn-res-block"
    title = "Attention residuals, block"
    gist = "attn-res over the sums of groups of blocks"
    citation = "Kimi team 2026, arXiv:2603.15031, section 3.2"
    variant_of = "attn-res"
    groups = 8

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        self.group_blocks = math.ceil(stack.blocks / self.groups)

    def extended(self, history: _History, branch: Value, sublayer: Sublayer) -> _History:
        return grouped(history, branch, sublayer.site, self.group_blocks)


def grouped(history: _History, branch: Value, site: Site, blocks: int) -> _History:
    """Returns the history with a branch that opens a group of so many blocks, or that is added to
    the last group.
    """
    opens_block = site.kind == site.stack.kinds[0]
    if opens_block and (site.block - 1) % blocks == 0:
        return *history, branch
    return *history[:-1], history[-1] + branch


@register
class InklingAttentionResiduals(AttentionResiduals):
    """A variant of `attn-res-block` with n(v) = v / RMS(v) for keys and values, logits query · n(v)
    / √d, and groups of 6 blocks.

    Inkling 2 as transformers 5.23 has it (`inkling2`), whose layers of sliding attention this is;
    its layers of full attention take one such mean each for queries, keys and values. The first
    sub-layer reads the embedding as it is.
    """

    name = "attn-res-inkling"
    title = "Attention residuals, Inkling 2"
    gist = "attn-res-block, keys and values RMS-normed"
    citation = "Inkling 2, transformers 5.23 (github.com/huggingface/transformers), inkling2"
    variant_of = "attn-res"
    group_blocks = 6

    def join(self, x: State, sublayer: Sublayer, norm: Norms) -> tuple[Value, _History]:
        _, history = x
        h = self.mean(sublayer, history) if sublayer.site.number > 1 else history[0]
        return h, self.extended(history, sublayer(norm(h)), sublayer)

    def extended(self, history: _History, branch: Value, sublayer: Sublayer) -> _History:
        return grouped(history, branch, sublayer.site, self.group_blocks)

    def finish(self, state: State, end: End) -> Value:
        return end.norm(self.mean(end, state[1]))

    def mean(self, of: End | Sublayer, history: _History) -> Value:
        query = of.parameter("query", initial=0.0, shape=(self.stack.width,))
        return mix(query, history, lambda v: joined(v) / math.sqrt(self.stack.width), joined)


@register
class DenseFormer(Placement):
    """A mean over depth after every block: after a block's Pre-LN sub-layers v gains x; x ← Σ_i
    weights_i · v_i, v_0 the embedding; y = LN(x).

    Pagliardini et al. 2024, section 3.1: a depth-weighted average after every block (dilation 1,
    period 1). The last weight starts at 1 and all others at 0, so that the model starts as Pre-LN.
    Blocks are averaged, not sub-layers, and v keeps what leaves a block before it is averaged.
    Weights as in the authors' experiments, GPT-2's.
    """

    name = "denseformer"
    title = "DenseFormer"
    gist = "Pre-LN, blocks end in a sum of all outputs"
    citation = "Pagliardini et al. 2024, arXiv:2402.02622, section 3.1"
    year = 2024
    streams = ("x", "v")
    initialisation = "normal-0.02"

    def start(self, x: Value, end: End) -> tuple[Value, _History]:
        return x, (x,)

    def block(self, state: State, sublayers: Sequence[Sublayer]) -> tuple[Value, _History]:
        x, history = state
        for sublayer in sublayers:
            x = x + sublayer(sublayer.norm(x))
        history = (*history, x)
        size = len(history)
        weights = sublayers[-1].parameter(
            "weights", initial=(*[0.0] * (size - 1), 1.0), shape=(size,)
        )
        return weighed([weights[i] for i in range(size)], history), history

    def finish(self, state: State, end: End) -> Value:
        x, _ = state
        return end.norm(x)

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)
