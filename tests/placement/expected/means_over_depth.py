"""Means over depth: what a sub-layer or a block reads is weighed of all that was computed below
it.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from placement.expectations import PRE, WIDTH, Expected, last_matrices_by_depth, norms, number
from reference import Equations, ReferenceStack


def mean_over_depth(values: list[Tensor], query: Tensor, key: Callable[[Tensor], Tensor]) -> Tensor:
    """Kimi team 2026, eq. 2 to 4: Σ_i softmax_i(query · key(v_i)) v_i."""
    scores_I = torch.stack([(query * key(v)).sum(-1) for v in values], -1).exp()
    shares_I = scores_I / scores_I.sum(-1, keepdim=True)
    return sum(shares_I[..., i, None] * v for i, v in enumerate(values))


def last_mean(values: list[Tensor], stack: ReferenceStack) -> Tensor:
    query, final_norm = stack.w[f"{stack.at}finish.placed.query"], stack.final_norm
    return final_norm(mean_over_depth(values, query, lambda v: final_norm.named("key", v)))


def attention_residuals(x: Tensor, stack: ReferenceStack) -> Tensor:
    values = [x]
    for f in stack.sublayers():
        h = mean_over_depth(values, f.placed("query"), lambda v, f=f: f.norm.named("key", v))
        values.append(f(f.norm(h)))
    return last_mean(values, stack)


def block_attention_residuals(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Kimi team 2026, figure 2, line by line: `layer_number` counts Transformer layers from 0, and
    a group is closed before a layer alone. 8 groups at most."""
    layers_a_group = math.ceil(stack.blocks / 8)
    blocks: list[Tensor] = []
    partial_block = x
    for layer_number, layer in enumerate(stack.by_block()):
        for f in layer:
            h = mean_over_depth(
                [*blocks, partial_block], f.placed("query"), lambda v, f=f: f.norm.named("key", v)
            )
            if f is layer[0] and layer_number % layers_a_group == 0:
                blocks.append(partial_block)
                partial_block = torch.zeros_like(x)
            partial_block = partial_block + f(f.norm(h))
    return last_mean([*blocks, partial_block], stack)


def inkling(x: Tensor, stack: ReferenceStack) -> Tensor:
    """transformers' Inkling2SlidingDecoderLayer: softmax attention of a query over normed states, 6
    layers a group.
    """

    def read(query: Tensor, states: list[Tensor]) -> Tensor:
        normed = [v / ((v * v).mean(-1, keepdim=True) + 1e-6).sqrt() for v in states]
        return mean_over_depth(normed, query, lambda v: v / math.sqrt(v.shape[-1]))

    blocks: list[Tensor] = []
    hidden = x
    for layer_number, layer in enumerate(stack.by_block()):
        for f in layer:
            h = (
                read(f.placed("query"), [*blocks, hidden])
                if layer_number or f is not layer[0]
                else hidden
            )
            branch = f(f.norm(h))
            if f is layer[0] and layer_number % 6 == 0:
                blocks.append(hidden)
                hidden = branch
            else:
                hidden = hidden + branch
    return stack.final_norm(read(stack.w[f"{stack.at}finish.placed.query"], [*blocks, hidden]))


READ = "mix(query, norm_key(v))"
NORMED = "mix(query, rms(v) / 22.63, rms(v))"
SHARED = {
    "added": PRE
    | norms("attention.key", "feed_forward.key", "finish.key")
    | number("attention.query", WIDTH)
    | number("feed_forward.query", WIDTH)
    | number("finish.query", WIDTH),
    "scheme": "normal-0.02",
    "first": {"query": 0},
    # The softmax of the first sub-layer has the embedding alone to choose from.
    "idle": ("blocks.0.attention.placed.query", "blocks.0.attention.norm.key.weight"),
}


def denseformer(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Pagliardini et al. 2024: X_i = B_i(Y_{i-1}), Y_i = Σ_{j ≤ i} α_ij X_j, Y_0 = X_0."""
    outputs = x[None]
    for block in stack.by_block():
        for f in block:
            x = x + f(f.norm(x))
        outputs = torch.cat([outputs, x[None]])
        x = torch.tensordot(block[-1].placed("weights"), outputs, dims=1)
    return stack.final_norm(x)


def in_block(block: int) -> str:
    """A sum of more than three values prints its first and its last."""
    last = f"weights_{block + 1} · (a + feed_forward(norm(a)))"
    between = "" if block == 1 else "weights_2 · v + " if block == 2 else "… + "
    branches = "x + attention(norm(x)) + feed_forward(norm(x + attention(norm(x))))"
    at = f"block {block}: "
    return (
        f"{at}a = x + attention(norm(x)); {at}x ← weights_1 · v + {between}{last}; {at}v ← [v, "
        f"{branches}]"
    )


EXPECTED = {
    "attn-res": Expected(
        equations=Equations(stack=attention_residuals),
        formula=f"v ← [x]; h ← {READ}; v ← [v, F(norm({READ}))]; y = norm({READ})",
        has_stream=False,
        **SHARED,
    ),
    "attn-res-block": Expected(
        equations=Equations(stack=block_attention_residuals),
        formula=(
            f"v ← [x]; attention: h ← {READ}; v ← [v, F(norm({READ}))]; "
            f"feed_forward: h ← {READ}; last v ← v + F(norm({READ})); y = norm({READ})"
        ),
        # Groups of 2 blocks with 1 left over, of 1 block, and of 2 blocks again.
        alone_blocks=9,
        encoder_blocks=5,
        decoder_blocks=9,
        **SHARED,
    ),
    "attn-res-inkling": Expected(
        equations=Equations(stack=inkling),
        formula=(
            "v ← [x]; block 1: attention: h ← v; v ← [v, F(norm(v))]; "
            f"block 1: feed_forward: h ← {NORMED}; last v ← v + F(norm({NORMED})); "
            f"blocks 2-6: h ← {NORMED}; last v ← v + F(norm({NORMED})); y = norm({NORMED})"
        ),
        added=PRE | number("feed_forward.query", WIDTH) | number("finish.query", WIDTH),
        cross=norms("cross_attention.main") | number("cross_attention.query", WIDTH),
        scheme="normal-0.02",
        first={"query": 0},
        # One block beyond the first group.
        alone_blocks=7,
        decoder_blocks=7,
    ),
    "denseformer": Expected(
        equations=Equations(stack=denseformer),
        formula=f"v ← [x]; {'; '.join(map(in_block, range(1, 7)))}; y = norm(x)",
        added=PRE | number("feed_forward.weights", 2),
        scheme="normal-0.02",
        gain=last_matrices_by_depth,
        first={
            "0.feed_forward.placed.weights": (0.0, 1.0),
            "1.feed_forward.placed.weights": (0.0, 0.0, 1.0),
        },
    ),
}
