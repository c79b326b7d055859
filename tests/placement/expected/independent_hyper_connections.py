"""Independent hyper-connections."""

import math

import torch
from torch import Tensor

from placement.expectations import PRE, Expected
from placement.expected.mhc import R, numbers, projected
from reference import Equations, ReferenceStack

N = 4


def independent(x: Tensor, stack: ReferenceStack) -> Tensor:
    """As transformers' HYV4HyperConnection and its decoder layer."""
    streams = torch.stack([x] * N, -2)
    for f in stack.sublayers():
        at = f"{f.at}placed."
        pre = projected(stack.w, at, "pre", streams).sigmoid() + 1e-6
        post = 2 * projected(stack.w, at, "post", streams).sigmoid() + 1e-6
        branch = f(f.norm((pre[..., None] * streams).sum(-2)))
        streams = streams + post[..., None] * branch[..., None, :]
    head = projected(stack.w, f"{stack.at}finish.placed.", "head", streams).sigmoid() + 1e-6
    return stack.final_norm((head[..., None] * streams).sum(-2))


ADDED = PRE | numbers("finish", "head", N)
for _place in ("attention", "feed_forward"):
    ADDED = ADDED | numbers(_place, "pre", N) | numbers(_place, "post", N)

EXPECTED = {
    "independent-hyper-connections": Expected(
        equations=Equations(stack=independent),
        formula=(
            f"post = σ(post_scale · post_weight · {R} + post_bias); "
            f"pre = σ(pre_scale · pre_weight · {R} + pre_bias); "
            "a = F(norm((pre_1 + 1e-06) · x1 + … + (pre_4 + 1e-06) · x4)); "
            + "; ".join(f"x{j} ← x{j} + (2 · post_{j} + 1e-06) · a" for j in range(1, 5))
            + f"; head = σ(head_scale · head_weight · {R} + head_bias); "
            "y = norm((head_1 + 1e-06) · x1 + … + (head_4 + 1e-06) · x4)"
        ),
        added=ADDED,
        scheme="normal-0.02",
        first={"pre_bias": -math.log(3), "post_bias": 0.0, "head_bias": -math.log(3)}
        | {f"{name}_scale": 0.01 for name in ("pre", "post", "head")},
        drawn={f"{name}_weight": 0.02 for name in ("pre", "post", "head")},
    )
}
