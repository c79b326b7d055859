"""How attention tells places apart: its logits between tokens that are all alike, computed again from the pass.

Every product that makes queries, keys or values is given one vector at all places and in all heads. What differs then
from place to place is what attention itself knows of places: rotations, or biases that are added to its logits.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..record import AttentionPlaces, PlaceLogits, Stack
from ..trace.graph import Graph
from ..trace.operations import TracedValue

# H = sequences and heads, Q = queries, K = keys, E = width of a head

_HIDDEN = -2000.0
"""Logits below are of keys that a mask hides."""
_SAME = 1e-3
"""Of the largest difference between logits: what rounding leaves."""
_ROUNDED = 1e-6
_LEAST, _MOST = 6, 24
"""Tokens that are looked at: of fewer, orders are met by chance."""
PROBED = 3
"""Blocks from the first on that are looked at, and the last."""


def probed(stack: Stack) -> set[int]:
    """The blocks whose attention is computed again."""
    return {*range(1, PROBED + 1), stack.blocks}


def places_of(
    graph: Graph, operands: Sequence[int], values: int | None, logits_of: Callable[[dict[int, Tensor]], Tensor]
) -> AttentionPlaces | None:
    """What attention knows of places; None where its queries and keys are not made in a way that is understood.

    operands: numbers of the queries and keys. logits_of: gives (..., Q, K) with other values for some numbers.
    """
    made = [_made(graph, n) for n in (*operands, *(() if values is None else (values,)))]
    width = graph.values[operands[0]].shape[-1]
    alike: dict[int, Tensor] = {}
    for number in made:
        if number is None or graph.values[number].shape[-1] % width:
            return None
        alike[number] = _alike(graph.values[number].tensor, width)
    # A rotation keeps lengths. Zeros that fill up shorter sequences do not, and are no sign of places.
    if _differs(graph.trace.again(alike, operands[0]).norm(dim=-1, keepdim=True)):
        return None
    logits_HQK = logits_of(alike).float().flatten(0, -3)[..., :_MOST, :_MOST]
    if not _LEAST <= logits_HQK.shape[-1] == logits_HQK.shape[-2]:
        return None
    found = _order(logits_HQK)
    if found == "none" and _turned(graph.trace.again(alike, operands[0])):
        found = "heads"
    weighed = None if values is None else graph.trace.again(alike, values)
    # What is padded differs too, and is no longer as long.
    by_place = weighed is not None and _differs(weighed) and _is_even(weighed.norm(dim=-1).flatten())
    return AttentionPlaces(logits=found, values=by_place)


def _made(graph: Graph, number: int) -> int | None:
    """The product with weights that a value is made by, with its shift; None behind a norm, and of anything else."""
    shifted: int | None = None
    while not graph.is_weight_product(value := graph.values[number]):
        before = [n for n in graph.predecessors[number] if graph.values[n].is_data]
        if not before or number in graph.norms:
            return None
        shifted = (shifted or number) if _is_shift(graph, value) else None
        number = max(before, key=lambda n: graph.values[n].tensor.numel())
    return number if shifted is None else shifted


def _is_shift(graph: Graph, value: TracedValue) -> bool:
    """Whether a value is another one with the same vector added at all places, or laid out anew."""
    given = [graph.values[n] for n in value.inputs if not graph.values[n].is_data]
    return value.op == "add" and len(given) == 1 and given[0].tensor.numel() == value.shape[-1]


def _alike(like: Tensor, width: int) -> Tensor:
    drawn_E = torch.randn(width, generator=torch.Generator().manual_seed(0)).to(like)
    return drawn_E.repeat(like.shape[-1] // width).expand(like.shape).contiguous()


def _order(logits_HQK: Tensor) -> PlaceLogits:
    """What the logits of tokens that are alike depend on; "" where on something else than is asked for."""
    seen_QK = (logits_HQK > _HIDDEN).all(0)
    if not bool(seen_QK.tril().eq(torch.ones_like(seen_QK).tril()).all()):
        return ""
    lower_QK = torch.ones_like(seen_QK).tril()
    known = logits_HQK[:, lower_QK]
    spread = float(known.max(-1).values.sub(known.min(-1).values).max())
    least = _SAME * spread
    if spread <= _SAME * max(1.0, float(known.abs().max())):
        return "none"
    inside_QK = lower_QK[:, 1:] & lower_QK[:, :-1]
    along_keys = logits_HQK.diff(dim=-1)[:, inside_QK]
    if bool((along_keys.abs() <= least).all()):
        return "queries"
    if bool((along_keys < -_ROUNDED * max(1.0, float(known.abs().max()))).all()):
        return "farther"
    # Along an antidiagonal the sum of both places is one, along a diagonal their difference.
    across = (logits_HQK[:, 1:, :-1] - logits_HQK[:, :-1, 1:])[:, lower_QK[:-1, 1:]]
    along = (logits_HQK[:, 1:, 1:] - logits_HQK[:, :-1, :-1])[:, lower_QK[:-1, :-1]]
    if bool((across.abs() <= least).all()) and bool((along.abs() > least).any()):
        return "sums"
    return "apart"


def _differs(x: Tensor) -> bool:
    """Whether (..., K, E) differs along its keys; of layouts with another order nothing is said."""
    return bool((x - x[..., :1, :]).abs().max() > _SAME * x.abs().max()) if x.ndim > 2 else False


def _turned(x: Tensor) -> bool:
    """Whether (..., T, E) is one at all places of a head, and in other heads the same numbers, turned."""
    if x.ndim < 3 or _differs(x):
        return False
    heads_HE = x[..., 0, :].flatten(0, -2)
    least = _SAME * float(heads_HE.norm(dim=-1).max())
    first_H = (heads_HE - heads_HE[:1]).norm(dim=-1) <= least
    # The heads of the first sequence; in the next they come again.
    again = first_H.nonzero().flatten().tolist()[1:]
    steps_H = heads_HE[: again[0] if again else None].diff(dim=0).norm(dim=-1)
    lengths_H = heads_HE.norm(dim=-1)
    return len(steps_H) > 1 and float(steps_H.min()) > least and all(map(_is_even, (steps_H, lengths_H)))


def _is_even(sizes: Tensor) -> bool:
    """Whether sizes are one, as those of a vector and of its steps are that is turned by one angle each time."""
    return torch.allclose(sizes, sizes[:1].expand_as(sizes), rtol=_SAME)
