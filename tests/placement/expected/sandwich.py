"""Sandwich-LN."""

from torch import Tensor

from placement.expectations import Expected, last_matrices_by_depth, norms
from reference import Equations, ReferenceStack

FORMULA = "x ← x + norm_after(F(norm_before(x))); y = norm(x)"
ADDED = norms("attention.before", "attention.after", "feed_forward.before", "feed_forward.after", "finish.main")


def sandwich(*, embedding_normed: bool) -> Equations:
    def formula(x: Tensor, stack: ReferenceStack) -> Tensor:
        if embedding_normed:
            x = stack.end("start")(x)
        for f in stack.sublayers():
            x = x + f.norm.named("after", f(f.norm.named("before", x)))
        return stack.final_norm(x)

    return Equations(stack=formula)


EXPECTED = {
    "sandwich": Expected(
        equations=sandwich(embedding_normed=False),
        formula=FORMULA,
        added=ADDED,
        scheme="normal-0.02",
        gain=last_matrices_by_depth,
    )
}
