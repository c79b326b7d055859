"""Formulas that change while they train: branches that open, scales that fall, a norm that
moves.
"""

from torch import Tensor

from placement.expectations import POST, PRE, Expected, norms
from reference import Equations, ReferenceStack, ReferenceSublayer

from .scaled_skips import ALPHA, gain


def branch_norm(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + stack.scheduled * f(x))
    return x


def by_depth(x: Tensor, stack: ReferenceStack) -> Tensor:
    """No paper: every block is open by as large a share of the one below as that is of the one
    below it.
    """
    opening = 1.0
    for block in stack.by_block():
        opening = opening * stack.scheduled
        for f in block:
            x = f.norm(x + opening * f(x))
    return x


def opening(f: ReferenceSublayer, stack: ReferenceStack) -> float:
    """Chen et al. 2026: min(t / (T l), 1) of block l, with t / (T L) for the number that is
    scheduled.
    """
    return min(stack.scheduled * stack.blocks / f.block, 1.0)


def under_pre_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + opening(f, stack) * f(f.norm(x))
    return stack.final_norm(x)


def under_post_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + opening(f, stack) * f(x))
    return x


def under_deepnorm(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(ALPHA[stack.at] * x + opening(f, stack) * f(x))
    return x


OPENING = "min(1, open · L/l)"


def deepnorm_to_post(x: Tensor, stack: ReferenceStack) -> Tensor:
    """No paper: a straight line from DeepNorm's skip scale to 1."""
    skip_scale = ALPHA[stack.at] + stack.scheduled * (1 - ALPHA[stack.at])
    for f in stack.sublayers():
        x = f.norm(skip_scale * x + f(x))
    return x


def pre_to_post(x: Tensor, stack: ReferenceStack) -> Tensor:
    """No paper: a straight line between the values of Pre-LN and those of Post-LN, wherever either
    has a norm.
    """

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


ADDED = norms(
    "attention.pre", "attention.post", "feed_forward.pre", "feed_forward.post", "finish.main"
)


EXPECTED = {
    "branch-norm": Expected(
        equations=Equations(stack=branch_norm),
        formula="x ← norm(x + branch_scale · F(x))",
        added=POST,
        starts_closed=True,
        # It is Post-LN at the full rate once its branches are through.
        toy_rate=1e-2,
    ),
    "branch-norm-by-depth": Expected(
        equations=Equations(stack=by_depth),
        formula="x ← norm(x + branch_scale^l · F(x))",
        added=POST,
        starts_closed=True,
        # A number that moves is known by its being there; its power is not seen.
        same_formula="branch-norm",
    ),
    "prores": Expected(
        equations=Equations(stack=under_pre_ln),
        formula=f"x ← x + {OPENING} · F(norm(x)); y = norm(x)",
        added=PRE,
        starts_closed=True,
    ),
    "prores-post-ln": Expected(
        equations=Equations(stack=under_post_ln),
        formula=f"x ← norm(x + {OPENING} · F(x))",
        added=POST,
        starts_closed=True,
        # A number that moves is known by its being there; what is done to it is not seen.
        same_formula="branch-norm",
        toy_rate=1e-2,
    ),
    "prores-deepnorm": Expected(
        equations=Equations(stack=under_deepnorm),
        formula=f"x ← norm(1.418 · x + {OPENING} · F(x))",
        added=POST,
        scheme="xavier-normal",
        gain=gain,
        starts_closed=True,
        toy_rate=1e-2,
    ),
    "deepnorm-to-post": Expected(
        equations=Equations(stack=deepnorm_to_post),
        formula="x ← norm(((1 - post) · 1.418 + post) · x + F(x))",
        added=POST,
        scheme="xavier-normal",
        gain=gain,
        # Before the first update the number's value is DeepNorm's.
        named_for_sure=False,
    ),
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
