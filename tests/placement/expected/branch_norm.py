"""BranchNorm."""

from torch import Tensor

from placement.expectations import POST, Expected
from reference import Equations, ReferenceStack


def branch_norm(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + stack.scheduled * f(x))
    return x


EXPECTED = {
    "branch-norm": Expected(
        equations=Equations(stack=branch_norm),
        formula="x ← norm(x + branch_scale · F(x))",
        added=POST,
        starts_closed=True,
        # It is Post-LN at the full rate once its branches are through.
        toy_rate=1e-2,
    )
}
