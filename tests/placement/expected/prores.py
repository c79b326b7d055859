"""ProRes under Pre-LN, Post-LN and DeepNorm."""

from torch import Tensor

from placement.expectations import POST, PRE, Expected
from placement.expected.deepnorm import ALPHA, gain
from reference import Equations, ReferenceStack, ReferenceSublayer


def opening(f: ReferenceSublayer, stack: ReferenceStack) -> float:
    """Chen et al. 2026: min(t / (T l), 1) of block l, with t / (T L) for the number that is scheduled."""
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
EXPECTED = {
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
}
