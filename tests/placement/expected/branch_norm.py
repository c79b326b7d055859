"""BranchNorm, and its branches let in by depth."""

from torch import Tensor

from placement.expectations import POST, Expected
from reference import Equations, ReferenceStack


def branch_norm(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x + stack.scheduled * f(x))
    return x


def by_depth(x: Tensor, stack: ReferenceStack) -> Tensor:
    """No paper: every block is open by as large a share of the one below as that is of the one below it."""
    opening = 1.0
    for block in stack.by_block():
        opening = opening * stack.scheduled
        for f in block:
            x = f.norm(x + opening * f(x))
    return x


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
}
