"""The groups of keys and values that heads read, where several heads share a group."""

# B = sequences, T = tokens, H = heads, G = groups, E = width of a head

from typing import Any

import torch

from ..trace.graph import Graph
from .attended import RecordedAttention
from .places import made_by

_MOST = 16
"""Groups that are looked at, one after another."""


def groups_of(graph: Graph, place: RecordedAttention) -> dict[str, Any]:
    """Returns the fields on groups; none where as many heads are made as there are, or where keys
    and values are made in a way not understood.
    """
    if place.values is None:
        return {}
    queries = graph.values[place.queries]
    of_keys = _heads_by_group(graph, place.keys, queries.shape[-1], queries.shape)
    of_values = _heads_by_group(
        graph, place.values, graph.values[place.values].shape[-1], queries.shape
    )
    if not of_keys or len(of_keys) != len(of_values):
        return {}
    unread = sum(not heads for heads in of_keys) + sum(not heads for heads in of_values)
    shared = unread == 0 and {*of_keys} != {*of_values}
    return {"unread_groups": unread, "groups_apart": shared}


def _heads_by_group(
    graph: Graph, number: int, width: int, queries: torch.Size
) -> list[frozenset[int]]:
    """Returns, for each group, the heads of all sequences that read it."""
    product = made_by(graph, number)
    if product is None or product == number:
        return []
    given, made = graph.values[product].tensor, graph.values[number].tensor
    groups, rest = divmod(given.shape[-1], width)
    tokens = queries[-2]
    sequences = given.numel() // (given.shape[-1] * tokens)
    heads = made[..., 0, 0].numel() // max(1, sequences)
    if rest or not 1 < groups <= _MOST or groups >= heads:
        return []
    drawn = torch.randn(given.shape, generator=torch.Generator().manual_seed(0)).to(given)
    found = []
    for group in range(groups):
        changed = given.clone()
        part = slice(group * width, (group + 1) * width)
        changed[..., part] += drawn[..., part]
        moved = (graph.trace.again({product: changed}, number) != made).flatten(0, -3)
        found.append(frozenset(moved.any(-1).any(-1).nonzero().flatten().tolist()))
    # Where a group's features are no neighbours, each part of them is of every head.
    everywhere = made[..., 0, 0].numel()
    return [] if all(len(heads) == everywhere for heads in found) else found
