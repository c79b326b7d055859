"""The growth along the sequence of what sub-layers add that carry a state from token to token."""

from collections.abc import Mapping, Sequence

from ....measure.passes import has_arithmetic
from ...record import Stack
from ...trace.graph import Graph

_LEAST = 12
"""Places of a sequence that growth can be told in."""
_GROWN = 10.0
"""Times by which the last quarter is larger than each of the first two; a sum of independent
tokens has grown by √T, and less than 2 since the second quarter."""


def growing_along(graph: Graph, stacks: Sequence[Stack]) -> Mapping[str, float]:
    """Finds sub-layers that mix tokens without attention and add much more at the end of a sequence
    than in its first half: returns how many times more, by name.
    """
    found = {}
    for stack in stacks:
        for one in stack.sublayers:
            place = one.measured.place
            if one.kind not in ("mixer", "convolution") or place is None:
                continue
            shape, given = graph.values[place.stream].shape, graph.values[place.addend].tensor
            if len(shape) != 3 or shape[1] < _LEAST or given.numel() != shape.numel():
                continue
            if given.is_meta or not has_arithmetic(given):
                continue
            square_T = given.detach().double().reshape(shape).square().mean((0, 2))
            first, second, _, last = (part.mean().sqrt() for part in square_T.chunk(4))
            before = max(float(first), float(second))
            if before > 0 and float(last) > _GROWN * before:
                found[one.name] = float(last) / before
    return found
