"""LayerNorm scaling."""

from torch import Tensor

from placement.expectations import PRE, Expected
from reference import Equations, ReferenceStack


def layer_norm_scaling(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(f.norm(x) * f.block**-0.5)
    return stack.final_norm(x)


EXPECTED = {
    "lns": Expected(
        equations=Equations(stack=layer_norm_scaling),
        formula="x ← x + F(norm(x) / √l); y = norm(x)",
        added=PRE,
        scheme="normal-0.02",
        toy_updates=90,
    )
}
