"""x0 residual, as nanochat starts it and as modded-nanogpt did."""

from torch import Tensor

from placement.expectations import PRE, Expected, norms, number
from reference import Equations, ReferenceStack


def x0_residual(x: Tensor, stack: ReferenceStack) -> Tensor:
    x0 = x = stack.end("start")(x)
    for block in stack.by_block():
        first = block[0]
        x = first.placed("x_scale") * x + first.placed("x0_scale") * x0
        for f in block:
            x = x + f(f.norm(x))
    return stack.final_norm(x)


INPUT = "x_scale · x + x0_scale · x_0"
X0 = {
    "equations": Equations(stack=x0_residual),
    "formula": (
        f"x ← norm(x); x_0 ← norm(x); a = {INPUT} + attention(norm({INPUT})); "
        "x ← a + feed_forward(norm(a)); y = norm(x)"
    ),
    "added": PRE | norms("start.main") | number("attention.x_scale") | number("attention.x0_scale"),
    "cross": norms("cross_attention.main"),
    "scheme": "normal-by-width",
}
STARTS = {"0.attention.placed.x_scale": 1.15, "0.attention.placed.x0_scale": 0.2}
STARTS |= {"1.attention.placed.x_scale": 1.05, "1.attention.placed.x0_scale": 0.05}
EXPECTED = {
    "x0-residual": Expected(**X0, first=STARTS),
    "x0-residual-modded": Expected(**X0, first={"x_scale": 1.0, "x0_scale": 0.0}, same_formula="x0-residual"),
}
