"""Depth-scaled sum."""

from torch import Tensor

from placement.expectations import Expected, norms
from reference import Equations, ReferenceStack


def depth_scaled(x: Tensor, stack: ReferenceStack) -> Tensor:
    """The sum of the embedding and all normed branches, over the square root of how many there are."""
    total = x
    for count, f in enumerate(stack.sublayers(), 1):
        mean = total / count**0.5
        total = total + f.norm.named("after", f(f.norm.named("before", mean)))
    return stack.final_norm(total / (1 + stack.blocks * len(stack.kinds)) ** 0.5)


EXPECTED = {
    "depth-scaled": Expected(
        equations=Equations(stack=depth_scaled),
        formula="x ← √((k - 1)/k) · x + norm_after(F(norm_before(x))) / √k; y = norm(x)",
        added=norms("attention.before", "attention.after", "feed_forward.before", "feed_forward.after", "finish.main"),
        scheme="normal-0.02",
    )
}
