"""How predictions grow or fall with depth: the exponents of power laws, fitted over stacks of several depths."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .predict import ModelSetting, Update, predict

DEPTHS = (64, 128, 256, 512, 1024)
CHANGE = "change"
CHANGE_DEPTHS = (32, 64, 128, 256)
"""Of the change by an update, which takes longer: with the cube of the depth at its end."""
QUANTITIES = {
    "q": "E‖x_L‖² of the last hidden state",
    "first_ffn_out": "gradient norm of W2 in the first block",
    "last_ffn_out": "gradient norm of W2 in the last block",
}


@dataclass(frozen=True, slots=True)
class Exponent:
    """value ~ depth^exponent, by least squares on logarithms."""

    exponent: float
    """NaN where a value is 0 or not finite."""
    residual: float
    """Largest relative distance of a value from the power law: how far the depths are from where it holds."""


def exponents(
    placement: str, model: ModelSetting, depths: Sequence[int] = DEPTHS, *, update: Update | None = None
) -> dict[str, dict[str, Exponent]]:
    """By stack and quantity (`QUANTITIES`), over stacks of these depths, each with the constants of its own depth.

    update: of its change of the output, too (`CHANGE`), over `CHANGE_DEPTHS`.

    Widths are taken to be infinite: at a finite one a deep stack's gradients scatter by e^(blocks / width), which is
    no power law. Raises ValueError as `predict` does, and for fewer than two different depths.
    """
    if len(set(depths)) < 2:
        raise ValueError(f"an exponent needs two depths or more, got {', '.join(map(str, depths)) or 'none'}")
    found: dict[str, dict[str, list[float]]] = {}
    for depth in depths:
        for kind, stack in predict(placement, replace(model, blocks=depth), scatter=False).items():
            norms = stack.gradient_norm["ffn_out"]
            for name, value in zip(QUANTITIES, (stack.q[-1], norms[0], norms[-1]), strict=True):
                found.setdefault(kind, {}).setdefault(name, []).append(float(value))
    powers = {
        kind: {name: fitted(depths, values) for name, values in quantities.items()}
        for kind, quantities in found.items()
    }
    if update is not None:
        for kind, values in output_changes(placement, model, CHANGE_DEPTHS, update).items():
            powers[kind][CHANGE] = fitted(CHANGE_DEPTHS, values)
    return powers


def output_changes(
    placement: str, model: ModelSetting, depths: Sequence[int], update: Update
) -> dict[str, list[float]]:
    """E‖δy‖² / d of the output by one update, by stack, for each depth, infinitely wide. Raises as `predict` does."""
    found: dict[str, list[float]] = {}
    for depth in depths:
        for kind, stack in predict(placement, replace(model, blocks=depth), scatter=False, update=update).items():
            if stack.change is not None:
                found.setdefault(kind, []).append(stack.change.output)
    return found


def fitted(depths: Sequence[int], values: Sequence[float]) -> Exponent:
    """A power law through values at these depths."""
    if not all(0 < value < np.inf for value in values):
        return Exponent(np.nan, np.nan)
    x, y = np.log(depths), np.log(values)
    slope, at_0 = np.polyfit(x, y, 1)
    return Exponent(float(slope), float(np.expm1(np.abs(y - at_0 - slope * x).max())))
