"""DeepNorm."""

from torch import Tensor

from placement.expectations import POST, Expected, Gain
from reference import Equations, ReferenceStack

ALPHA = {"": 6**0.25, "encoder.": 0.81 * (2**4 * 3) ** (1 / 16), "decoder.": 9**0.25}
"""Wang et al. 2022, figure 2, for 3 blocks alone, or 2 encoder and 3 decoder blocks."""
BETA = {"encoder": 0.87 * (2**4 * 2) ** (-1 / 16), "decoder": (12 * 2) ** -0.25}
"""For 2 and 2 blocks."""


def deepnorm(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(ALPHA[stack.at] * x + f(x))
    return x


def gain(of: Gain) -> float:
    return 1.0 if of.matrix in ("query", "key") else BETA[of.stack]


EXPECTED = {
    "deepnorm": Expected(
        equations=Equations(stack=deepnorm),
        formula="x ← norm(1.418 · x + F(x))",
        added=POST,
        scheme="xavier-normal",
        gain=gain,
        toy_rate=1e-2,
    )
}
