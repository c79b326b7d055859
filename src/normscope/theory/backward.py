"""Gradients back through a stack on moments, with the coefficients that carried its values forward."""

from dataclasses import dataclass

import numpy as np

from .moments import Coefficients
from .stream import MomentStack
from .sublayers import Pair


@dataclass(frozen=True, slots=True)
class StackGradients:
    """Of the mean loss per target token, in nats."""

    weights: dict[str, list[float]]
    """Frobenius norm of each matrix's gradient by its name, block by block."""
    memory: Pair
    """At an encoder's output, of all cross-attention together."""


def backward(stack: MomentStack, at_output: Pair) -> StackGradients:
    """The way back through a stack that has run forward.

    at_output: squared norm of the loss's gradient at an output token, and product of two of them.

    A path through a sub-layer is independent of any other, since its matrices are its own: squared gradients add up
    over sub-layers. Paths beside the sub-layers have added up in the coefficients, signs and all. A norm is taken as a
    division; its Jacobian also takes off two of d directions, which is of order 1/d.
    """
    one, two = np.zeros(stack.atoms.count), np.zeros(stack.atoms.count)
    _spread(one, two, stack.output.coefficients, at_output)
    weights: dict[str, list[float]] = {}
    memory_one = memory_two = 0.0
    for applied in reversed(stack.applied):
        g = Pair(float(one[applied.atom]), float(two[applied.atom]))
        for name, norm in applied.map.weight_gradients(g).items():
            weights.setdefault(_name(name, applied.reads_memory), []).append(norm)
        if applied.reads_memory:
            at_memory = applied.map.gradient_at_source(g)
            memory_one, memory_two = memory_one + at_memory.one, memory_two + at_memory.two
        else:
            _spread(one, two, applied.coefficients, applied.map.gradient_at_source(g))
    return StackGradients({name: norms[::-1] for name, norms in weights.items()}, Pair(memory_one, memory_two))


def _spread(one: Coefficients, two: Coefficients, coefficients: Coefficients, g: Pair) -> None:
    squares = coefficients**2
    one[: len(squares)] += squares * g.one
    two[: len(squares)] += squares * g.two


def _name(weight: str, crosses: bool) -> str:
    return f"cross_{weight}" if crosses else weight
