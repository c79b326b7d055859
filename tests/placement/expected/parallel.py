"""Parallel block, with one norm and with one for each sub-layer."""

from torch import Tensor

from placement.expectations import PRE, Expected, norms
from reference import Equations, ReferenceStack


def parallel(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        normed = block[0].norm(x)
        x = sum((f(normed) for f in block), x)
    return stack.final_norm(x)


def parallel_two_norms(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        x = sum((f(f.norm(x)) for f in block), x)
    return stack.final_norm(x)


EXPECTED = {
    "parallel": Expected(
        equations=Equations(stack=parallel),
        formula="x ← x + attention(norm(x)) + feed_forward(norm(x)); y = norm(x)",
        added=norms("attention.main", "finish.main"),
        cross={},
        scheme="normal-0.02",
    ),
    "parallel-two-norms": Expected(
        equations=Equations(stack=parallel_two_norms),
        formula="x ← x + attention(norm(x)) + feed_forward(norm(x)); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
    ),
}
