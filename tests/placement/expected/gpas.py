"""Gradient-preserving activation scaling."""

from torch import Tensor

from placement.expectations import PRE, Expected
from reference import Equations, ReferenceStack


def gpas(x: Tensor, stack: ReferenceStack) -> Tensor:
    """The authors' `GPASBlock` after every sub-layer: hidden - act(gate) * hidden.detach()."""
    for f in stack.sublayers():
        gate = stack.w[f"{stack.at}blocks.{f.block - 1}.placed.gate"]
        h = x + f(f.norm(x))
        x = h - gate / (1 + (-gate).exp()) * h.detach()
    return stack.final_norm(x)


EXPECTED = {
    "gpas": Expected(
        equations=Equations(stack=gpas),
        formula="a = x + F(norm(x)); x ← a - silu(gate) · stopped(a); y = norm(x)",
        added=PRE | {"blocks.0.placed.gate": ()},
        scheme="normal-0.02",
        first={"gate": 0.0},
    )
}
