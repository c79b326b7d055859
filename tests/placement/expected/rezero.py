"""ReZero."""

from torch import Tensor

from placement.expectations import Expected
from reference import Equations, ReferenceStack


def rezero(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        for f in block:
            x = x + stack.w[f"{stack.at}blocks.{f.block - 1}.placed.gate"] * f(x)
    return x


EXPECTED = {
    "rezero": Expected(
        equations=Equations(stack=rezero),
        formula="x ← x + gate · F(x)",
        added={"blocks.0.placed.gate": ()},
        scheme="rezero",
        first={"gate": 0},
        starts_closed=True,
    )
}
