"""Measurements of how attention distinguishes places.

Read by computing it again with one vector in the place of every query, key and value, for all heads
and places: what differs then from place to place is what attention itself knows of places,
rotations or biases that are added to its logits.
"""

# H = sequences and heads, Q = queries, K = keys, E = width of a head

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..attended import PlaceLogits
from ..record import Stack
from ..trace.graph import Graph
from ..trace.operations import TracedValue

_HIDDEN = -2000.0
"""Logits below are of keys that a mask hides."""
_SAME = 1e-3
"""The share of the largest difference between logits that rounding leaves."""
_ROUNDED = 1e-6
_LEAST, _MOST = 6, 24
"""Tokens that are looked at: of fewer, orders are met by chance."""
PROBED = 3
"""Blocks from the first on that are looked at, and the last."""


def probed(stack: Stack) -> set[int]:
    """Returns the blocks whose attention is computed again."""
    return {*range(1, PROBED + 1), stack.blocks}


def places_of(
    graph: Graph,
    operands: Sequence[int],
    values: int | None,
    logits_of: Callable[[dict[int, Tensor]], Tensor],
) -> dict[str, Any]:
    """Returns the fields on what attention knows of places; none where queries and keys are made in
    a way not understood.

    operands: numbers of the queries and keys. logits_of: gives (..., Q, K) with other values for
    some numbers.
    """
    made = [made_by(graph, n) for n in (*operands, *(() if values is None else (values,)))]
    width = graph.values[operands[0]].shape[-1]
    alike: dict[int, Tensor] = {}
    for number in made:
        if number is None or graph.values[number].shape[-1] % width:
            return {}
        alike[number] = _alike(graph.values[number].tensor, width)
    # A rotation keeps lengths. Zeros that fill up shorter sequences do not, and are no sign of
    # places.
    if _differs(graph.trace.again(alike, operands[0]).norm(dim=-1, keepdim=True)):
        return {}
    # A sum over all keys beside the softmax, as a sink behind attention has it, tells of how many
    # there are, and the weights that are taken here do not hold it.
    if any("logsumexp" in value.op for value in graph.values):
        return {}
    whole_HQK = logits_of(alike).float().flatten(0, -3)
    # Of more keys than queries the first may be of another source, such as global tokens.
    if not _LEAST <= whole_HQK.shape[-1] == whole_HQK.shape[-2]:
        return {}
    logits_HQK = whole_HQK[..., :_MOST, :_MOST]
    found = _order(logits_HQK)
    if found == "none" and _turned(graph.trace.again(alike, operands[0])):
        found = "heads"
    if found == "apart":
        made_of = [graph.trace.again(alike, n) for n in operands]
        found = _by_turns(logits_HQK, *made_of)
        counts = found == "apart" and not _is_given_more(graph)
        if counts and _is_turned_by_place(made_of[0]) and _are_uneven(whole_HQK):
            found = "uneven"
    weighed = None if values is None else graph.trace.again(alike, values)
    # What is padded differs too, and is no longer as long.
    by_place = (
        weighed is not None and _differs(weighed) and _is_even(weighed.norm(dim=-1).flatten())
    )
    return {"place_logits": found, "places_in_values": by_place}


def _is_given_more(graph: Graph) -> bool:
    """Tells whether a pass is given pictures or sounds beside its tokens: they stand among these
    with places of two or three numbers, and the steps between neighbours are meant to differ.
    """
    given = [value.tensor for value in graph.values if value.is_data and not value.inputs]
    indices = {x.shape for x in given if x.dtype == torch.long}
    return bool(indices) and any(
        x.is_floating_point() and x.ndim > 1 and x.shape not in indices for x in given
    )


def made_by(graph: Graph, number: int) -> int | None:
    """Returns the product with weights that a value is made by, with its shift, behind a norm too;
    None of anything else.
    """
    shifted: int | None = None
    while not graph.is_weight_product(value := graph.values[number]):
        before = [n for n in graph.predecessors[number] if graph.values[n].is_data]
        if not before:
            return None
        shifted = (shifted or number) if _is_shift(graph, value) else None
        number = max(before, key=lambda n: graph.values[n].tensor.numel())
    return number if shifted is None else shifted


def _is_shift(graph: Graph, value: TracedValue) -> bool:
    """Tells whether a value is another one with the same vector added at all places, or
    rearranged.
    """
    given = [graph.values[n] for n in value.inputs if not graph.values[n].is_data]
    return value.op == "add" and len(given) == 1 and given[0].tensor.numel() == value.shape[-1]


def _alike(like: Tensor, width: int) -> Tensor:
    drawn_E = torch.randn(width, generator=torch.Generator().manual_seed(0)).to(like)
    return drawn_E.repeat(like.shape[-1] // width).expand(like.shape).contiguous()


def _order(logits_HQK: Tensor) -> PlaceLogits:
    """Classifies what the logits of identical tokens depend on; "" where an earlier key is
    hidden.
    """
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
    along_queries = logits_HQK.diff(dim=-2)[:, lower_QK[:-1]]
    if bool((along_queries.abs() <= least).all()) and not _is_even_step(along_keys, least):
        return "keys"
    if bool((along_keys < -_ROUNDED * max(1.0, float(known.abs().max()))).all()):
        return "farther"
    # Along an antidiagonal the sum of both places is one, along a diagonal their difference.
    across = (logits_HQK[:, 1:, :-1] - logits_HQK[:, :-1, 1:])[:, lower_QK[:-1, 1:]]
    along = (logits_HQK[:, 1:, 1:] - logits_HQK[:, :-1, :-1])[:, lower_QK[:-1, :-1]]
    if bool((across.abs() <= least).all()) and bool((along.abs() > least).any()):
        return "sums"
    return "apart"


def _is_even_step(along_keys: Tensor, least: float) -> bool:
    """Tells whether logits rise by the same number from key to key in each head: to a softmax that
    is a bias by distance.
    """
    return bool(((along_keys - along_keys[:, :1]).abs() <= least).all())


_PAIRS = 8
"""Channels of a head from which on there are four angles of a rotation, and more."""
_MOST_TURNED = 256
"""Places by which a channel that turns slowly has moved."""
_OF_ONE_ANGLE = 2
"""Dimensions that a vector moves in as it is turned."""
_LOST = 1e-3
"""The share of the largest singular value that rounding and channels that hardly turn leave."""


def _by_turns(logits_HQK: Tensor, queries: Tensor, keys: Tensor) -> PlaceLogits:
    """Classifies logits of queries and keys that are turned by their place, (..., T, E): whether a
    query meets the key of its own place alike everywhere, and whether channels turn by several
    angles.
    """
    # Keys may lie as the product takes them, (..., E, T).
    if not _is_turned_by_place(queries) or not any(map(_is_turned_by_place, (keys, keys.mT))):
        return "apart"
    own_HQ = logits_HQK.diagonal(dim1=-2, dim2=-1)
    spread = float(logits_HQK[logits_HQK > _HIDDEN].std())
    if float((own_HQ - own_HQ[:, :1]).abs().max()) > _UNEVEN * spread:
        return "unmatched"
    places_TE = queries.flatten(0, -3)[0, :_MOST_TURNED].double()
    if queries.shape[-1] < _PAIRS or len(places_TE) < _LEAST:
        return "apart"
    sizes = torch.linalg.svdvals(places_TE)
    angles = int((sizes > _LOST * sizes[0]).sum())
    if angles == _OF_ONE_ANGLE:
        return "one turn"
    # What stands still is one vector more; heads with a quarter turned have two pairs that are.
    is_one = queries.shape[-1] >= 2 * _PAIRS and angles == _OF_ONE_ANGLE + 1
    return "one pair" if is_one else "apart"


def _are_uneven(logits_HQK: Tensor) -> bool:
    """Tells whether the step from a query's own key to the key before it differs from place to
    place, in attention that hides later keys: in pictures, places have two numbers.
    """
    own_HQ = logits_HQK.diagonal(dim1=-2, dim2=-1)
    steps_HQ = logits_HQK.diagonal(offset=-1, dim1=-2, dim2=-1)
    later_HQ = logits_HQK.diagonal(offset=1, dim1=-2, dim2=-1)
    if bool((later_HQ > _HIDDEN).any()) or bool((steps_HQ <= _HIDDEN).any()):
        return False
    shown = logits_HQK[:, :_MOST, :_MOST]
    spread = float(shown[shown > _HIDDEN].std())
    own, step = own_HQ[:, :1], steps_HQ[:, :1]
    # A bias for long texts may grow with the place; what turns keeps a token's logit with itself.
    is_turned = float((own_HQ - own).abs().max()) <= _UNEVEN * spread
    return is_turned and float((steps_HQ - step).abs().max()) > _UNEVEN * spread


def _is_turned_by_place(x: Tensor) -> bool:
    """Tells whether (..., T, E) differs from place to place and keeps its length."""
    return x.ndim > 2 and _differs(x) and _is_even(x[..., :_MOST, :].norm(dim=-1).flatten())


_UNEVEN = 0.05
"""The share of the logits' deviation that exceeds rounding in any dtype."""


def _differs(x: Tensor) -> bool:
    """Tells whether (..., K, E) differs along its keys; False for layouts that are not of this
    form.
    """
    return bool((x - x[..., :1, :]).abs().max() > _SAME * x.abs().max()) if x.ndim > 2 else False


def _turned(x: Tensor) -> bool:
    """Tells whether (..., T, E) is the same at all places of a head, and in other heads the same
    vector, turned.
    """
    if x.ndim < 3 or _differs(x):
        return False
    heads_HE = x[..., 0, :].flatten(0, -2)
    least = _SAME * float(heads_HE.norm(dim=-1).max())
    first_H = (heads_HE - heads_HE[:1]).norm(dim=-1) <= least
    # The heads of the first sequence; in the next they come again.
    again = first_H.nonzero().flatten().tolist()[1:]
    steps_H = heads_HE[: again[0] if again else None].diff(dim=0).norm(dim=-1)
    lengths_H = heads_HE.norm(dim=-1)
    return (
        len(steps_H) > 1
        and float(steps_H.min()) > least
        and all(map(_is_even, (steps_H, lengths_H)))
    )


def _is_even(sizes: Tensor) -> bool:
    """Tells whether all sizes are equal, as the lengths of a vector that is turned by one angle
    each time, and of its steps, are.
    """
    return torch.allclose(sizes, sizes[:1].expand_as(sizes), rtol=_SAME)
