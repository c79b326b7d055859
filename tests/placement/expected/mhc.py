"""Manifold-constrained hyper-connections."""

import math
from functools import partial

import torch
from torch import Tensor

from placement.expectations import PRE, WIDTH, Expected, Shapes, number
from reference import Equations, ReferenceStack

N = 4


def doubly_stochastic(logits: Tensor, rounds: int = 20, epsilon: float = 0.0) -> Tensor:
    """(B, T, 16) -> (B, T, 4, 4), row and column, in the order of the authors' steps."""
    matrix = logits.unflatten(-1, (N, N)).exp()
    matrix = matrix / matrix.sum(-1, keepdim=True) + epsilon
    matrix = matrix / (matrix.sum(-2, keepdim=True) + epsilon)
    for _ in range(rounds - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + epsilon)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + epsilon)
    return matrix


def mhc(x: Tensor, stack: ReferenceStack, epsilon: float = 0.0) -> Tensor:
    streams = torch.stack([x] * N, -2)  # (B, T, 4, D)
    for f in stack.sublayers():

        def logits(name: str, at: str = f"{f.at}placed.", streams: Tensor = streams) -> Tensor:
            return projected(stack.w, at, name, streams)

        pre, post = logits("pre").sigmoid() + epsilon, 2 * logits("post").sigmoid()
        c = doubly_stochastic(logits("C"), epsilon=epsilon)
        branch = f(f.norm(torch.einsum("bti,btid->btd", pre, streams)))
        streams = torch.einsum("btij,btid->btjd", c, streams) + torch.einsum("btj,btd->btjd", post, branch)
    head = projected(stack.w, f"{stack.at}finish.placed.", "head", streams).sigmoid() + epsilon
    return stack.final_norm(torch.einsum("bti,btid->btd", head, streams))


def projected(w: dict[str, Tensor], at: str, name: str, streams: Tensor) -> Tensor:
    flat = streams.flatten(-2)
    root = ((flat * flat).mean(-1, keepdim=True) + 1e-6).sqrt()
    return w[f"{at}{name}_scale"] * (flat @ w[f"{at}{name}_weight"].T) / root + w[f"{at}{name}_bias"]


def numbers(place: str, name: str, rows: int) -> Shapes:
    return (
        number(f"{place}.{name}_weight", rows, N * WIDTH)
        | number(f"{place}.{name}_bias", rows)
        | number(f"{place}.{name}_scale")
    )


ADDED = PRE | numbers("finish", "head", N)
for _place in ("attention", "feed_forward"):
    ADDED = ADDED | numbers(_place, "pre", N) | numbers(_place, "post", N) | numbers(_place, "C", N * N)

R = "rms(x1, x2, x3, x4)"


def formula(pre: str, head: str) -> str:
    """With an entry of pre and of head as it is printed, `#` for its number."""

    def read(entry: str) -> str:
        return " + … + ".join(f"{entry.replace('#', i)} · x{i}" for i in "14")

    return (
        f"C = doubly_stochastic(C_scale · C_weight · {R} + C_bias); "
        f"post = σ(post_scale · post_weight · {R} + post_bias); "
        f"pre = σ(pre_scale · pre_weight · {R} + pre_bias); "
        f"a = F(norm({read(pre)})); "
        + "; ".join(f"x{j} ← C_1{j} · x1 + … + C_4{j} · x4 + 2 · post_{j} · a" for j in range(1, 5))
        + f"; head = σ(head_scale · head_weight · {R} + head_bias); y = norm({read(head)})"
    )


DRAWN = {f"{name}_weight": 0.02 for name in ("pre", "post", "C", "head")}
FIRST_MIXTURE = tuple(f"blocks.0.attention.placed.C_{part}" for part in ("weight", "bias", "scale"))
"""One of equal streams, so that no output depends on it."""
EXPECTED = {
    "mhc": Expected(
        equations=Equations(stack=mhc),
        formula=formula("pre_#", "head_#"),
        added=ADDED,
        scheme="normal-0.02",
        first={"pre_bias": -math.log(3), "post_bias": 0.0, "head_bias": -math.log(3)}
        | {f"{name}_scale": 0.01 for name in ("pre", "post", "C", "head")}
        | {"C_bias": tuple(torch.eye(N).flatten().tolist())},
        drawn=DRAWN,
        # Four tensors do not show whether the weights between them sum to 1.
        named_for_sure=False,
        idle=FIRST_MIXTURE,
    ),
    "mhc-deepseek-v4": Expected(
        equations=Equations(stack=partial(mhc, epsilon=1e-6)),
        formula=formula("(pre_# + 1e-06)", "(head_# + 1e-06)"),
        added=ADDED,
        scheme="normal-0.02",
        first={f"{name}_bias": 0.0 for name in ("pre", "post", "C", "head")}
        | {f"{name}_scale": 1.0 for name in ("pre", "post", "C", "head")},
        drawn=DRAWN,
        named_for_sure=False,
        same_formula="mhc",
        refused_by_theory="drawn with a standard deviation of 0.91 over 2,048 features",
        # But for the ε, by which sums of C differ from 1.
        idle=FIRST_MIXTURE,
    ),
}
