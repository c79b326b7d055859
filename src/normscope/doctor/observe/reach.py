"""The other tokens and sequences that a sub-layer's output is made from.

Read by computing each branch again with one token changed, where what is masked, cut, or reshaped
wrongly shows alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...measure.passes import has_arithmetic
from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import branches_of
from ..measured import RecordedPlace
from ..record import Stack, with_measured
from ..trace.flow import disturb, keeps_rows
from ..trace.graph import Graph
from ..trace.operations import SENDING, UNREPEATABLE
from .around.sinusoids import turns

# A, C = the two dimensions of tokens as the model is given them, mostly sequences and places in
# them, D = width B = sequences, Q = queries, K = keys

_SHOWS = 1e-6
"""The share of the output's largest entry from which on a change is more than rounding."""

_STEPS = 6
"""Queries and keys of which the mask of a sequence's own tokens is known by its shape."""

_NOTHING = 1e-30
"""Weights below are 0: masks that add -100 leave 4e-44."""


def with_reach(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack]
) -> tuple[Stack, ...]:
    """Returns the stacks with what each of their branches is made from, where the stream is (A, C,
    D).
    """
    found = []
    for stream, stack in zip(streams, stacks, strict=True):
        both = zip(stack.sublayers, branches_of(stack, stream), strict=True)
        reaches = [_reach(graph, branch, sublayer.measured.place) for sublayer, branch in both]
        found.append(with_measured(stack, reaches))
    return tuple(found)


def _reach(graph: Graph, branch: Branch, place: RecordedPlace | None) -> dict[str, Any]:
    """Measures whether outputs depend on later tokens, along which dimensions they depend on other
    tokens at all, whether on other tokens alone, and whether they stand in the reverse order of
    what they are made from; an empty result where that is not understood.

    Where a model turns (A, C, D) to (C, A, D) between what it is given and its blocks, as fairseq's
    do, A is still 0.
    """
    if place is None:
        return {}
    whole = graph.values[place.stream].shape
    ends = (place.addend, *graph.after(place.addend, "same"))
    wanted = next((n for n in ends if graph.values[n].shape == whole), place.addend)
    output = graph.values[wanted].tensor
    # What a matrix reads is often a view of all tokens in one row, or of another order.
    reads = list(dict.fromkeys(graph.rearranged(n) for n in branch.reads))
    shape = whole[:-1]
    if not _tells_tokens(graph, branch, reads, wanted, shape):
        return {}
    turned = _is_turned(graph, shape)
    places = shape[0 if turned else 1]
    generator = torch.Generator().manual_seed(0)
    later, mixes, mirrored, misses = False, set[int](), False, False
    # The last token may be padding, which nothing looks at.
    for at in dict.fromkeys((places - 1, 2 * places // 3)):
        changed = _changed(at, shape[1 if turned else 0], places)
        given = {}
        for number in reads:
            other = graph.values[number].tensor.clone()
            for row, token in changed.items():
                disturb(other[token, row] if turned else other[row, token], generator)
            given[number] = other
        try:
            after = graph.trace.again(given, wanted)
        except UNREPEATABLE:
            return {}
        moved_AC = (after - output).abs().amax(-1).nan_to_num() > _SHOWS * output.abs().amax()
        moved_AC = moved_AC.T if turned else moved_AC
        later = later or bool(moved_AC[0, :at].any())
        others = [row for row in range(len(moved_AC)) if row not in changed]
        mixes |= {0} if bool(moved_AC[others].any()) else set()
        mirrored = mirrored or _is_mirrored(moved_AC, changed)
        misses = misses or any(
            bool(moved_AC[row].any()) and not moved_AC[row, token] for row, token in changed.items()
        )
        moved_AC[0, at] = False
        mixes |= {1} if bool(moved_AC[0].any()) else set()
    # Of more tokens than the model is given, as of several streams in a row, later ones are not
    # those that come later.
    is_given = _given(graph, shape) in (shape, shape[::-1])
    return {
        "reads_later": later and is_given,
        "mixes": tuple(sorted(mixes)),
        "mirrored": mirrored and is_given,
        "misses_itself": misses,
    }


def _changed(at: int, sequences: int, places: int) -> dict[int, int]:
    """Returns the place to change in each sequence: one in the first; where there are sequences
    beside the second, which shows whether sequences influence each other, the places before that in
    two of them, too.
    """
    if sequences < _TOLD_APART or at == places - 1:
        return {0: at}
    return {0: at, 2: at - 1, 3: at - 2}


_TOLD_APART = 4
"""Sequences, of which three are changed and one is not."""


def _is_mirrored(moved_AC: Tensor, changed: Mapping[int, int]) -> bool:
    """Tells whether outputs that are made from a later token begin at an earlier place."""
    if len(changed) < _TOLD_APART - 1 or not bool(moved_AC[[*changed]].any(1).all()):
        return False
    firsts = {row: int(moved_AC[row].int().argmax()) for row in changed}
    sums = {firsts[row] + place for row, place in changed.items()}
    return len(sums) == 1 and all(firsts[row] < place for row, place in changed.items())


def _tells_tokens(
    graph: Graph, branch: Branch, reads: Sequence[int], wanted: int, shape: torch.Size
) -> bool:
    """Tells whether an output shows which tokens it is made from once one of the tokens read is
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
    """Tells whether two dimensions of tokens stand in the reverse order of that in which the model
    receives them.
    """
    first = _given(graph, shape)
    return first != shape and first == shape[::-1]


def _given(graph: Graph, shape: torch.Size) -> torch.Size:
    """Returns the first two dimensions of what the model is given."""
    given = (
        v.shape[:2]
        for v in graph.values
        if v.is_data and not graph.predecessors[v.number] and len(v.shape) > 1
    )
    return next(given, shape)


def positions_of(graph: Graph, stack: Stack) -> dict[str, Any]:
    """Returns the fields on what is added for every input alike: along which dimension of a stack's
    (A, C, D) it differs, how many places share what is added there with an earlier one, and how
    many of the pairs of a sinusoid turn by more than a radian.

    None where it differs along none alone, and where A is C, so that another order of them would
    not show; no place shares anything where several tables are added.
    """
    places = [one.measured.place for one in stack.sublayers if one.measured.place is not None]
    shape = graph.values[places[0].stream].shape if places else torch.Size()
    added = [*_added(graph, shape)] if len(set(shape[:-1])) > 1 else []
    if not added:
        return {}
    along, rows = added[0]
    # Not every dtype can be compared row by row.
    rows = torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows.float()
    turned = turns(rows.flatten(1))
    return {
        "positions_along": 1 - along if _is_turned(graph, shape[:-1]) else along,
        "places_shared": len(rows) - len(torch.unique(rows, dim=0)) if len(added) == 1 else 0,
        "fast_turns": 0.0 if turned is None else float((turned > _FAST).double().mean()),
    }


_FAST = 1.2
"""Radians: the fastest pair of a sinusoid turns by 1 from place to place, all others by less."""


def _added(graph: Graph, shape: torch.Size) -> Iterator[tuple[int, Tensor]]:
    """Yields what is added to (A, C, D) for every input alike: the dimension along which it
    differs, and its rows along that.
    """
    for value in graph.values:
        if value.op != "add" or not value.is_data or value.shape != shape:
            continue
        for number in value.inputs:
            given = graph.values[number]
            if given.is_data or given.tensor.is_meta or given.shape[-1:] != shape[-1:]:
                continue
            if given.tensor.numel() == shape[-1]:
                continue  # a bias, of which many are added
            rows = given.tensor.detach().expand(value.shape)
            differs = [along for along in (0, 1) if bool((rows != rows.narrow(along, 0, 1)).any())]
            if len(differs) == 1:
                yield differs[0], rows.select(1 - differs[0], 0)


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
    at = torch.arange(keys).to(rows)
    later = at > rows[:, None]
    if not itself and len(rows) >= _STEPS and keys >= _STEPS:
        seen_QK = (by_sequence > _NOTHING).flatten(0, 1).any(0)
        own = rows[rows < keys]
        is_staircase = bool(seen_QK[: len(own)].gather(1, own[:, None]).all())
        found["hides_as_later"] = is_staircase and bool((seen_QK & later).sum() == 0)
    if itself and int(rows[-1]) + 1 == keys > 2:
        # What has no meaning may look anywhere.
        seen_QK = ((by_sequence > _NOTHING) & real_BQ[:, None, :, None]).flatten(0, 1).any(0)
        earlier = at < rows[:, None]
        found["sees_later"] = float((seen_QK & later).any(-1)[:-1].double().mean())
        found["sees_itself"] = float((seen_QK & (at == rows[:, None])).any(-1)[1:].double().mean())
        found["sees_earlier"] = float((seen_QK & earlier).any(-1)[1:].double().mean())
        found["farthest"] = int(((rows[:, None] - at).abs() * seen_QK).max())
    return found
