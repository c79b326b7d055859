"""T-Fixup."""

from torch import Tensor

from placement.expectations import Expected, Gain
from reference import Equations, ReferenceStack

BRANCH_GAIN = {"encoder": 0.67 * 2**-0.25, "decoder": (9 * 2) ** -0.25}


def t_fixup(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(x)
    return x


def gain(of: Gain) -> float:
    return 1.0 if of.matrix in ("query", "key") else BRANCH_GAIN[of.stack]


EXPECTED = {
    "t-fixup": Expected(
        equations=Equations(stack=t_fixup),
        formula="x ← x + F(x)",
        added={},
        models=frozenset({"encoder-decoder"}),
        scheme="xavier-uniform",
        gain=gain,
        embedding_gain=18**-0.25,
    )
}
