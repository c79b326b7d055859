"""ResiDual."""

from torch import Tensor

from placement.expectations import PRE, Expected
from reference import Equations, ReferenceStack


def residual(x: Tensor, stack: ReferenceStack) -> Tensor:
    branches = [x]
    for f in stack.sublayers():
        branches.append(f(x))
        x = f.norm(x + branches[-1])
    return x + stack.final_norm(sum(branches))


EXPECTED = {
    "residual": Expected(
        equations=Equations(stack=residual),
        formula="x ← norm(x + F(x)); r ← r + F(x); y = x + norm(r)",
        added=PRE,
        norm_epsilon=1e-7,
    )
}
