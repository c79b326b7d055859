"""Whether several residual streams that start as copies of each other are copies to the end, whatever is trained."""

# n = streams, N = tokens, D = width
from collections.abc import Mapping

import torch
from torch import Tensor

from ..find.streams import Stream
from ..trace.graph import Graph
from ..trace.lanes import apart
from ..trace.operations import Origin

_WITHIN = 1e-4
"""Of the largest entry. Weights that differ as little as training makes them differ move streams further apart."""
_MOVED = 0.1
"""What weights are moved by, in units of their own root mean square, or of `_SMALL` where that is larger."""
_SMALL = 0.1


def stay_copies(graph: Graph, stream: Stream) -> bool | None:
    """True where streams are copies after every sub-layer, and are so too when all trained parameters have moved.

    Then nothing can tell them apart, and they do the work of one. None of one stream, of streams that do not start as
    copies, and where a part of the pass cannot be computed again.

    Each sub-layer is computed again from the recorded streams before it, with noise on all trained parameters.
    """
    if stream.streams == 1 or not stream.start_equal:
        return None
    recorded = [graph.values[join].tensor for join in stream.joins]
    if not all(_are_copies(x, stream) for x in recorded):
        return False
    moved = _moved(graph)
    try:
        before: Mapping[int, Tensor] = {}
        for join in stream.joins:
            if not _are_copies(graph.trace.again({**moved, **before}, join), stream):
                return False
            before = {join: graph.values[join].tensor}
    except (ValueError, RuntimeError, IndexError):
        # Experts, and memory that is written piece by piece, cannot be computed again with other values.
        return None
    return True


def _are_copies(x: Tensor, stream: Stream) -> bool:
    x_NnD = apart(x, stream.streams, stream.width)
    return x_NnD is not None and float((x_NnD - x_NnD[:, :1]).abs().max()) <= _WITHIN * float(x_NnD.abs().max())


def _moved(graph: Graph) -> dict[int, Tensor]:
    """Every trained parameter with noise on it, by number."""
    generator = torch.Generator().manual_seed(0)
    moved = {}
    for value in graph.values:
        if value.op == "leaf" and value.origin == Origin.TRAINABLE and value.tensor.is_floating_point():
            weight = value.tensor.detach()
            size = max(float(weight.float().square().mean().sqrt()), _SMALL)
            noise = torch.randn(weight.shape, generator=generator).to(weight)
            moved[value.number] = weight + _MOVED * size * noise
    return moved
