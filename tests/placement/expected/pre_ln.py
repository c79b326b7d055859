"""Pre-LN."""

from torch import Tensor

from placement.expectations import PRE, Expected
from reference import Equations, ReferenceStack


def pre_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Xiong et al. 2020, table 1 (right)."""
    for f in stack.sublayers():
        x = x + f(f.norm(x))
    return stack.final_norm(x)


FORMULA = "x ← x + F(norm(x)); y = norm(x)"
EXPECTED = {"pre-ln": Expected(equations=Equations(stack=pre_ln), formula=FORMULA, added=PRE)}
