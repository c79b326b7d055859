"""Which other tokens and sequences a sub-layer's output is made from, and how places are told
apart.

Read by computing each branch again with one token changed, where what is masked, cut, or reshaped
wrongly shows alike; and attention with one vector in the place of every query, key and value, for
all heads and places: what differs then from place to place is what attention itself knows of
places, rotations or biases that are added to its logits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...measure.passes import has_arithmetic
from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import branches_of
from ..measured import PlaceLogits, RecordedPlace
from ..record import Stack, with_measured
from ..trace.flow import disturb, keeps_rows
from ..trace.graph import Graph
from ..trace.operations import SENDING, UNREPEATABLE, TracedValue

# A, C = the two dimensions of tokens as the model is given them, mostly sequences and places in
# them, D = width B = sequences, Q = queries, K = keys

_SHOWS = 1e-6
"""Of the output's largest entry: a change that is more than rounding."""

_NOTHING = 1e-30
"""Weights below are 0: masks that add -100 leave 4e-44."""


def with_reach(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack]
) -> tuple[Stack, ...]:
    """The stacks with what each of their branches is made from, where the stream is (A, C, D)."""
    found = []
    for stream, stack in zip(streams, stacks, strict=True):
        both = zip(stack.sublayers, branches_of(stack, stream), strict=True)
        reaches = [_reach(graph, branch, sublayer.measured.place) for sublayer, branch in both]
        found.append(
            with_measured(
                stack, [{"reads_later": later, "mixes": mixes} for later, mixes in reaches]
            )
        )
    return tuple(found)


def _reach(
    graph: Graph, branch: Branch, place: RecordedPlace | None
) -> tuple[bool, tuple[int, ...]]:
    """Whether outputs depend on later tokens, and along which dimensions they depend on others at
    all.

    Where a model turns (A, C, D) to (C, A, D) between what it is given and its blocks, as fairseq's
    do, A is still 0.
    """
    if place is None:
        return False, ()
    whole = graph.values[place.stream].shape
    ends = (place.addend, *graph.after(place.addend, "same"))
    wanted = next((n for n in ends if graph.values[n].shape == whole), place.addend)
    output = graph.values[wanted].tensor
    # What a matrix reads is often a view of all tokens in one row, or of another order.
    reads = list(dict.fromkeys(graph.rearranged(n) for n in branch.reads))
    shape = whole[:-1]
    if not _tells_tokens(graph, branch, reads, wanted, shape):
        return False, ()
    turned = _is_turned(graph, shape)
    places = shape[0 if turned else 1]
    generator = torch.Generator().manual_seed(0)
    later, mixes = False, set[int]()
    # The last token may be padding, which nothing looks at.
    for at in dict.fromkeys((places - 1, 2 * places // 3)):
        given = {}
        for number in reads:
            changed = graph.values[number].tensor.clone()
            disturb(changed[at, 0] if turned else changed[0, at], generator)
            given[number] = changed
        try:
            after = graph.trace.again(given, wanted)
        except UNREPEATABLE:
            return False, ()
        moved_AC = (after - output).abs().amax(-1).nan_to_num() > _SHOWS * output.abs().amax()
        moved_AC = moved_AC.T if turned else moved_AC
        later = later or bool(moved_AC[0, :at].any())
        mixes |= {0} if bool(moved_AC[1:].any()) else set()
        moved_AC[0, at] = False
        mixes |= {1} if bool(moved_AC[0].any()) else set()
    # Of more tokens than the model is given, as of several streams in a row, later ones are not
    # those that come later.
    return later and _given(graph, shape) in (shape, shape[::-1]), tuple(sorted(mixes))


def _tells_tokens(
    graph: Graph, branch: Branch, reads: Sequence[int], wanted: int, shape: torch.Size
) -> bool:
    """Whether an output tells which tokens it is made from, once one of those that are read is
    changed.

    wanted: the output, by its number. shape: of the tokens, two dimensions that are told apart.
    """
    output = graph.values[wanted].tensor
    if (
        len(shape) != 2
        or output.shape[:-1] != shape
        or output.is_meta
        or len(set(shape)) < 2
        or 1 in shape
    ):
        return False
    if any(graph.values[n].shape[:-1] != shape or not graph.depends(wanted, n) for n in reads):
        return False
    if not all(has_arithmetic(graph.values[n].tensor) for n in (wanted, *reads)):
        return False
    if all(keeps_rows(graph, n, branch.output) for n in reads):
        return False
    # Where tokens are sent by what they are, another token changes the places of the others.
    return not any(
        graph.values[inside].op in SENDING for n in reads for inside in graph.between(n, wanted)
    )


def _is_turned(graph: Graph, shape: torch.Size) -> bool:
    """Whether two dimensions of tokens stand in the other order than in what the model is given."""
    first = _given(graph, shape)
    return first != shape and first == shape[::-1]


def _given(graph: Graph, shape: torch.Size) -> torch.Size:
    """The first two dimensions of what the model is given."""
    given = (
        v.shape[:2]
        for v in graph.values
        if v.is_data and not graph.predecessors[v.number] and len(v.shape) > 1
    )
    return next(given, shape)


def positions_along(graph: Graph, stack: Stack) -> int | None:
    """The dimension of a stack's (A, C, D) along which what is added for every input alike differs;
    None where none alone does, and where A is C, so that another order of them would not show."""
    places = [one.measured.place for one in stack.sublayers if one.measured.place is not None]
    shape = graph.values[places[0].stream].shape if places else torch.Size()
    if len(set(shape[:-1])) < 2:
        return None
    for value in graph.values:
        if value.op != "add" or not value.is_data or value.shape != shape:
            continue
        for number in value.inputs:
            given = graph.values[number]
            if given.is_data or given.tensor.is_meta or given.shape[-1:] != shape[-1:]:
                continue
            rows = given.tensor.expand(value.shape)
            differs = [along for along in (0, 1) if bool((rows != rows.narrow(along, 0, 1)).any())]
            if len(differs) == 1:
                return 1 - differs[0] if _is_turned(graph, shape[:-1]) else differs[0]
    return None


def seen_keys(
    weights: Tensor, rows: Tensor, itself: bool, padding_BK: Tensor | None
) -> dict[str, Any]:
    """Shares of queries: those that see a later key, of those that have one; that see an earlier
    one; likewise.
    """
    found: dict[str, Any] = {}
    keys = weights.shape[-1]
    sequences = len(padding_BK) if padding_BK is not None and padding_BK.shape[-1] == keys else 1
    by_sequence = weights.nan_to_num(0).reshape(sequences, -1, len(rows), keys)
    real_BQ = torch.ones(sequences, len(rows), dtype=torch.bool, device=weights.device)
    if padding_BK is not None and padding_BK.shape[-1] == keys:
        real_BQ = padding_BK[:, rows] if itself else real_BQ
        on_padding = (by_sequence * ~padding_BK[:, None, None]).sum(-1).mean(1)[real_BQ]
        by_sequence = by_sequence * padding_BK[:, None, None]
        found["on_padding"] = float(on_padding.mean())
    if itself and int(rows[-1]) + 1 == keys > 2:
        # What has no meaning may look anywhere.
        seen_QK = ((by_sequence > _NOTHING) & real_BQ[:, None, :, None]).flatten(0, 1).any(0)
        at = torch.arange(keys).to(rows)
        later, earlier = at > rows[:, None], at < rows[:, None]
        found["sees_later"] = float((seen_QK & later).any(-1)[:-1].double().mean())
        found["sees_itself"] = float((seen_QK & (at == rows[:, None])).any(-1)[1:].double().mean())
        found["sees_earlier"] = float((seen_QK & earlier).any(-1)[1:].double().mean())
        found["farthest"] = int(((rows[:, None] - at).abs() * seen_QK).max())
    return found


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
    graph: Graph,
    operands: Sequence[int],
    values: int | None,
    logits_of: Callable[[dict[int, Tensor]], Tensor],
) -> dict[str, Any]:
    """The fields on what attention knows of places; none where queries and keys are made in a way
    not understood.

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
    whole_HQK = logits_of(alike).float().flatten(0, -3)
    logits_HQK = whole_HQK[..., :_MOST, :_MOST]
    if not _LEAST <= logits_HQK.shape[-1] == logits_HQK.shape[-2]:
        return {}
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
    """Whether a pass is given pictures or sounds beside its tokens: they stand among these with
    places of two or three numbers, and the steps between neighbours are meant to differ.
    """
    given = [value.tensor for value in graph.values if value.is_data and not value.inputs]
    indices = {x.shape for x in given if x.dtype == torch.long}
    return bool(indices) and any(
        x.is_floating_point() and x.ndim > 1 and x.shape not in indices for x in given
    )


def made_by(graph: Graph, number: int) -> int | None:
    """The product with weights that a value is made by, with its shift, behind a norm too; None of
    anything else.
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
    """Whether a value is another one with the same vector added at all places, or laid out anew."""
    given = [graph.values[n] for n in value.inputs if not graph.values[n].is_data]
    return value.op == "add" and len(given) == 1 and given[0].tensor.numel() == value.shape[-1]


def _alike(like: Tensor, width: int) -> Tensor:
    drawn_E = torch.randn(width, generator=torch.Generator().manual_seed(0)).to(like)
    return drawn_E.repeat(like.shape[-1] // width).expand(like.shape).contiguous()


def _order(logits_HQK: Tensor) -> PlaceLogits:
    """What the logits of tokens that are alike depend on; "" where on something else than is asked
    for.
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
    if bool((along_keys < -_ROUNDED * max(1.0, float(known.abs().max()))).all()):
        return "farther"
    # Along an antidiagonal the sum of both places is one, along a diagonal their difference.
    across = (logits_HQK[:, 1:, :-1] - logits_HQK[:, :-1, 1:])[:, lower_QK[:-1, 1:]]
    along = (logits_HQK[:, 1:, 1:] - logits_HQK[:, :-1, :-1])[:, lower_QK[:-1, :-1]]
    if bool((across.abs() <= least).all()) and bool((along.abs() > least).any()):
        return "sums"
    return "apart"


_PAIRS = 8
"""Channels of a head from which on there are four angles of a rotation, and more."""
_MOST_TURNED = 256
"""Places by which a channel that turns slowly has moved."""
_OF_ONE_ANGLE = 2
"""Dimensions that a vector moves in as it is turned."""
_LOST = 1e-3
"""Of the largest singular value: what rounding and channels that hardly turn leave."""


def _by_turns(logits_HQK: Tensor, queries: Tensor, keys: Tensor) -> PlaceLogits:
    """Of queries and keys that are turned by their place, (..., T, E): whether a query meets the
    key of its own place alike everywhere, and whether channels are turned by several angles.
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
    """Whether to the key before its own a query is another step at one place than at others, in
    attention that hides later keys: of pictures, places have two numbers.
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
    """Whether (..., T, E) differs from place to place and keeps its length."""
    return x.ndim > 2 and _differs(x) and _is_even(x[..., :_MOST, :].norm(dim=-1).flatten())


_UNEVEN = 0.05
"""Of the logits' deviation: more than rounding in any dtype."""


def _differs(x: Tensor) -> bool:
    """Whether (..., K, E) differs along its keys; of layouts with another order nothing is said."""
    return bool((x - x[..., :1, :]).abs().max() > _SAME * x.abs().max()) if x.ndim > 2 else False


def _turned(x: Tensor) -> bool:
    """Whether (..., T, E) is one at all places of a head, and in other heads the same numbers,
    turned.
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
    """Whether sizes are one, as those of a vector and of its steps are that is turned by one angle
    each time.
    """
    return torch.allclose(sizes, sizes[:1].expand_as(sizes), rtol=_SAME)
