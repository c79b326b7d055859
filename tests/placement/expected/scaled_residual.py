"""Scaled residual: of the stream and its branches, and of the stream alone."""

from torch import Tensor

from placement.expectations import PRE, WIDTH, Expected, Shapes, number
from reference import Equations, ReferenceStack


def zaya(x: Tensor, stack: ReferenceStack) -> Tensor:
    def at_start(name: str) -> Tensor:
        return stack.w[f"{stack.at}start.placed.{name}"]

    x = (x + at_start("bias")) * at_start("scale")
    for f in stack.sublayers():
        branch = (f(f.norm(x)) + f.placed("branch_bias")) * f.placed("branch_scale")
        x = branch + (x + f.placed("skip_bias")) * f.placed("skip_scale")
    return stack.final_norm(x)


def doge(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.placed("skip_scale") * x + f(f.norm(x))
    return stack.final_norm(x)


def of_both(*names: str) -> Shapes:
    """Vectors that attention and feed-forward have."""
    found: Shapes = {}
    for name in names:
        found |= number(f"attention.{name}", WIDTH) | number(f"feed_forward.{name}", WIDTH)
    return found


EXPECTED = {
    "zaya": Expected(
        equations=Equations(stack=zaya),
        formula=(
            "x ← scale · (x + bias); "
            "x ← skip_scale · (x + skip_bias) + branch_scale · (F(norm(x)) + branch_bias); y = norm(x)"
        ),
        added=PRE
        | of_both("skip_scale", "skip_bias", "branch_scale", "branch_bias")
        | {"start.placed.bias": (WIDTH,), "start.placed.scale": (WIDTH,)},
        scheme="normal-0.02",
        first={"start.placed.scale": 1, "start.placed.bias": 0}
        | dict.fromkeys(("skip_scale", "branch_scale"), 1)
        | dict.fromkeys(("skip_bias", "branch_bias"), 0),
    ),
    "doge": Expected(
        equations=Equations(stack=doge),
        formula="x ← skip_scale · x + F(norm(x)); y = norm(x)",
        added=PRE | of_both("skip_scale"),
        scheme="normal-0.02",
        first={"skip_scale": 1},
    ),
}
