"""Post-LN whose skip weighs more than the branch, by a constant of the depth or by what a batch
measures.
"""

import math
from collections.abc import Callable

from torch import Tensor

from placement.expectations import POST, WIDTH, Expected, Gain, norms, number, sublayers_of
from reference import Equations, ReferenceStack

ALPHA = {"": 6**0.25, "encoder.": 0.81 * (2**4 * 3) ** (1 / 16), "decoder.": 9**0.25}
"""Wang et al. 2022, figure 2, for 3 blocks alone, or 2 encoder and 3 decoder blocks."""
BETA = {"encoder": 0.87 * (2**4 * 2) ** (-1 / 16), "decoder": (12 * 2) ** -0.25}
"""For 2 and 2 blocks."""


def deepnorm(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(ALPHA[stack.at] * x + f(x))
    return x


def gain(of: Gain) -> float:
    return 1.0 if of.matrix in ("query", "key") else BETA[of.stack]


def deeploop(x: Tensor, stack: ReferenceStack) -> Tensor:
    """arXiv:2607.13491: (2N)^1/2 for N blocks of two sub-layers; a decoder's third counts."""
    scale = (3 if stack.at == "decoder." else 2) * stack.blocks
    for f in stack.sublayers():
        x = f.norm(scale**0.5 * x + f(x))
    return x


def deeploop_gain(of: Gain) -> float:
    """(8N)^-1/2 for 2 blocks; (12M)^-1/2 for a decoder's."""
    if of.matrix in ("query", "key"):
        return 1.0
    return float((24 if of.stack == "decoder" else 16) ** -0.5)


def admin(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Liu et al. 2020, section 4: ω a vector for each sub-layer."""
    for f in stack.sublayers():
        x = f.norm(f.placed("skip_scale") * x + f(x))
    return x


def weighed_skip(scale: Callable[[ReferenceStack], float]) -> Equations:
    """LN(scale · x + F(x)): admin-torch."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            x = f.norm(scale(stack) * x + f(x))
        return x

    return Equations(stack=formula)


def log_n(stack: ReferenceStack) -> float:
    n = sublayers_of(stack)
    return math.sqrt((n + 1) / math.log(n + 1) - 1)


ADMIN = {
    "equations": Equations(stack=admin),
    "formula": "x ← norm(skip_scale · x + F(x))",
    "added": POST
    | number("attention.skip_scale", WIDTH)
    | number("feed_forward.skip_scale", WIDTH),
    "first": {"skip_scale": 1},
}


def keel(pre_blocks: int) -> Equations:
    """pre_blocks: how many blocks at the bottom are plain Pre-LN."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            branch = f(f.norm.named("inner", x))
            x = (
                x + branch
                if f.block <= pre_blocks
                else f.norm.named("outer", sublayers_of(stack) * x + branch)
            )
        return x

    return Equations(stack=formula)


EXPECTED = {
    "deepnorm": Expected(
        equations=Equations(stack=deepnorm),
        formula="x ← norm(1.418 · x + F(x))",
        added=POST,
        scheme="xavier-normal",
        gain=gain,
        toy_rate=1e-2,
    ),
    "deeploop": Expected(
        equations=Equations(stack=deeploop),
        formula="x ← norm(3.464 · x + F(x))",
        added=POST,
        scheme="xavier-normal",
        gain=deeploop_gain,
        same_formula="admin-constant",
        toy_rate=1e-2,
    ),
    "admin": Expected(**ADMIN),
    "admin-clinic": Expected(**ADMIN, same_formula="admin"),
    "admin-constant": Expected(
        equations=weighed_skip(lambda stack: math.sqrt(sublayers_of(stack))),
        formula="x ← norm(3.464 · x + F(x))",
        added=POST,
    ),
    "admin-log-n": Expected(
        equations=weighed_skip(log_n), formula="x ← norm(2.017 · x + F(x))", added=POST
    ),
    "keel": Expected(
        equations=keel(0),
        formula="x ← norm_outer(12 · x + F(norm_inner(x)))",
        added=norms(
            "attention.inner", "attention.outer", "feed_forward.inner", "feed_forward.outer"
        ),
        scheme="normal-0.02",
        toy_rate=5e-3,
        toy_updates=90,
    ),
    "keel-pre-first": Expected(
        equations=keel(1),
        formula="block 1: x ← x + F(norm_inner(x)); blocks 2-6: x ← norm_outer(12 · x + "
        "F(norm_inner(x)))",
        added=norms("attention.inner", "feed_forward.inner"),
        scheme="normal-0.02",
    ),
}
