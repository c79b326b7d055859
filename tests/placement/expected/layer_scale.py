"""LayerScale."""

import torch
from torch import Tensor

from placement.expectations import PRE, WIDTH, Expected, number
from reference import Equations, ReferenceStack


def layer_scale(x: Tensor, stack: ReferenceStack) -> Tensor:
    """Touvron et al. 2021, eq. 4, with the diagonal matrix that it writes."""
    for f in stack.sublayers():
        x = x + f(f.norm(x)) @ torch.diag(f.placed("layer_scale"))
    return stack.final_norm(x)


EXPECTED = {
    "layer-scale": Expected(
        equations=Equations(stack=layer_scale),
        formula="x ← x + layer_scale · F(norm(x)); y = norm(x)",
        added=PRE | number("attention.layer_scale", WIDTH) | number("feed_forward.layer_scale", WIDTH),
        scheme="normal-0.02",
        first={"layer_scale": 0.1},
    )
}
