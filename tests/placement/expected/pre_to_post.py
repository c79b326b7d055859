"""Pre-LN that turns into Post-LN."""

from torch import Tensor

from placement.expectations import Expected, norms
from reference import Equations, ReferenceStack


def pre_to_post(x: Tensor, stack: ReferenceStack) -> Tensor:
    """No paper: a straight line between the values of Pre-LN and those of Post-LN, wherever either has a norm."""

    def between(pre: Tensor, post: Tensor) -> Tensor:
        return pre + stack.scheduled * (post - pre)

    for f in stack.sublayers():
        z = x + f(between(f.norm.named("pre", x), x))
        x = between(z, f.norm.named("post", z))
    return between(stack.final_norm(x), x)


EXPECTED = {
    "pre-to-post": Expected(
        equations=Equations(stack=pre_to_post),
        formula=(
            "a = x + F((1 - post) · norm_pre(x) + post · x); "
            "x ← (1 - post) · a + post · norm_post(a); y = (1 - post) · norm(x) + post · x"
        ),
        added=norms("attention.pre", "attention.post", "feed_forward.pre", "feed_forward.post", "finish.main"),
    )
}
