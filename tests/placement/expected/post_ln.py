"""Post-LN."""

from torch import Tensor

from placement.expectations import POST, Expected
from reference import Equations, ReferenceStack


def post_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Xiong et al. 2020, table 1 (left)."""
    for f in stack.sublayers():
        x = f.norm(x + f(x))
    return x


EXPECTED = {"post-ln": Expected(equations=Equations(stack=post_ln), formula="x ← norm(x + F(x))", added=POST)}
