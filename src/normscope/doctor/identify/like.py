"""Which of the two oldest placements a stack's wiring is like, whatever scales and initialisation it has."""

from typing import Literal

from ..record import Stack


def wired_like(stack: Stack) -> Literal["Pre-LN", "Post-LN", ""]:
    """By where the norms stand: on inputs of sub-layers alone, or on sums alone; "" for others."""
    formulas = [sublayer.formula for sublayer in stack.sublayers if sublayer.block > 0]
    if all(formula.reads_norm and not formula.sum_is_normed for formula in formulas):
        return "Pre-LN"
    return "Post-LN" if all(formula.sum_is_normed for formula in formulas) else ""
