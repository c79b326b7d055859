"""Pre-LN that turns into Post-LN, and the other way round."""

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


def post_to_pre(x: Tensor, stack: ReferenceStack) -> Tensor:
    """A straight line the other way: at a share s of it, what `pre_to_post` is at 1 - s."""

    def between(post: Tensor, pre: Tensor) -> Tensor:
        return post + stack.scheduled * (pre - post)

    for f in stack.sublayers():
        z = x + f(between(x, f.norm.named("pre", x)))
        x = between(f.norm.named("post", z), z)
    return between(x, stack.final_norm(x))


ADDED = norms("attention.pre", "attention.post", "feed_forward.pre", "feed_forward.post", "finish.main")
EXPECTED = {
    "pre-to-post": Expected(
        equations=Equations(stack=pre_to_post),
        formula=(
            "a = x + F((1 - post) · norm_pre(x) + post · x); "
            "x ← (1 - post) · a + post · norm_post(a); y = (1 - post) · norm(x) + post · x"
        ),
        added=ADDED,
    ),
    "post-to-pre": Expected(
        equations=Equations(stack=post_to_pre),
        formula=(
            "a = x + F(pre · norm_pre(x) + (1 - pre) · x); "
            "x ← pre · a + (1 - pre) · norm_post(a); y = pre · norm(x) + (1 - pre) · x"
        ),
        added=ADDED,
        same_formula="pre-to-post",
    ),
}
