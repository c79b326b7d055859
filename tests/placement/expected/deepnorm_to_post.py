"""DeepNorm whose skip scale falls to Post-LN's."""

from torch import Tensor

from placement.expectations import POST, Expected
from reference import Equations, ReferenceStack

from .deepnorm import ALPHA, gain


def deepnorm_to_post(x: Tensor, stack: ReferenceStack) -> Tensor:
    """No paper: a straight line from DeepNorm's skip scale to 1."""
    skip_scale = ALPHA[stack.at] + stack.scheduled * (1 - ALPHA[stack.at])
    for f in stack.sublayers():
        x = f.norm(skip_scale * x + f(x))
    return x


EXPECTED = {
    "deepnorm-to-post": Expected(
        equations=Equations(stack=deepnorm_to_post),
        formula="x ← norm(((1 - post) · 1.418 + post) · x + F(x))",
        added=POST,
        scheme="xavier-normal",
        gain=gain,
        # Before the first update the number's value is DeepNorm's.
        named_for_sure=False,
    )
}
