"""KEEL."""

from torch import Tensor

from placement.expectations import Expected, norms, sublayers_of
from reference import Equations, ReferenceStack


def keel(pre_blocks: int) -> Equations:
    """pre_blocks: how many blocks at the bottom are plain Pre-LN."""

    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        for f in stack.sublayers():
            branch = f(f.norm.named("inner", x))
            x = x + branch if f.block <= pre_blocks else f.norm.named("outer", sublayers_of(stack) * x + branch)
        return x

    return Equations(stack=formula)


EXPECTED = {
    "keel": Expected(
        equations=keel(0),
        formula="x ← norm_outer(12 · x + F(norm_inner(x)))",
        added=norms("attention.inner", "attention.outer", "feed_forward.inner", "feed_forward.outer"),
        scheme="normal-0.02",
        toy_rate=5e-3,
        toy_updates=90,
    ),
    "keel-pre-first": Expected(
        equations=keel(1),
        formula="block 1: x ← x + F(norm_inner(x)); blocks 2-6: x ← norm_outer(12 · x + F(norm_inner(x)))",
        added=norms("attention.inner", "feed_forward.inner"),
        scheme="normal-0.02",
    ),
}
