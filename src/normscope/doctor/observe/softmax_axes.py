"""Along which axis attention's weights are a mean: that of the keys, or by mistake another one."""

import torch
from torch import Tensor

from ..trace.graph import Graph
from .attended import RecordedAttention, weighed_values
from .norms import places_along


def wrong_axis(graph: Graph, place: RecordedAttention) -> str:
    """Returns the dimension of the softmax and that of the keys, where these are two; "" where they
    are one, or not known.
    """
    weighed = weighed_values(graph, place.softmax)
    value = graph.values[place.softmax]
    if weighed is None or place.scores is None:
        return ""
    number, factor, _ = weighed
    axes = range(len(value.shape))
    taken = int(value.args[1]) % len(value.shape)
    if taken == axes[-1] and factor == 0 and _keeps_last(graph, place.softmax, number):
        return ""
    right = [
        axis
        for axis in axes
        if _runs_along(graph, place.softmax, number, axis, -1 if factor == 0 else -2)
    ]
    if len(right) != 1 or taken in right:
        return _joint(
            graph.values[number].tensor.float(), len(value.tensor), -1 if factor == 0 else -2
        )
    return _axes(value.shape, taken, right[0])


def _joint(weights: Tensor, sequences: int, keys: int) -> str:
    """Describes weights that sum to 1 over all heads of a query at once; "" for others."""
    read = weights.reshape(sequences, -1, *weights.shape[-2:])
    if read.shape[1] == 1:
        return ""
    summed = read.sum(keys)
    together = torch.allclose(summed.sum(1), torch.ones_like(summed[:, 0]), atol=1e-4)
    return f"heads and keys at once: {read.shape[1]} heads share one sum" if together else ""


def _axes(shape: torch.Size, taken: int, right: int) -> str:
    """Returns two dimensions in words: the one that a softmax was taken over, and that of the
    keys.
    """
    names = {0: "sequences", len(shape) - 3: "sequences or heads" if len(shape) == 3 else "heads"}
    names |= {axis: "queries" for axis in (len(shape) - 2, len(shape) - 1) if axis != right}
    return (
        f"dimension {taken} ({names.get(taken, 'no keys')}) of {tuple(shape)}, with keys in "
        f"dimension {right}"
    )


_KEEPING = frozenset(
    {
        "view",
        "reshape",
        "_unsafe_view",
        "expand",
        "clone",
        "detach",
        "alias",
        "_to_copy",
        "unsqueeze",
    }
)


def _keeps_last(graph: Graph, softmax: int, number: int) -> bool:
    """Tells whether a rearrangement is known to leave the last dimension in its place."""
    last = graph.values[softmax].shape[-1]
    while number != softmax:
        value = graph.values[number]
        if (
            value.op not in _KEEPING
            or value.shape[-1] != last
            or len(graph.predecessors[number]) != 1
        ):
            return False
        (number,) = graph.predecessors[number]
    return True


def _runs_along(graph: Graph, softmax: int, read: int, axis: int, over: int) -> bool:
    """Tells whether one axis of the softmax is the one that a later rearrangement of it is summed
    over.
    """
    shape = graph.values[softmax].shape
    places = places_along(shape, axis).to(graph.values[softmax].tensor)
    made = graph.trace.again({softmax: places}, read)
    return made.shape[over] == shape[axis] > 1 and bool((made.diff(dim=over) == 1).all())
