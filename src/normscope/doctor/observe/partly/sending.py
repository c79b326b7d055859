"""Tokens that are sent to some of several experts by their scores, and what decides it."""

import torch
from torch import Tensor

from ....measure.passes import has_arithmetic
from ...partly_used import Sending
from ...trace.graph import Graph

# N = tokens, E = experts

_LEAST_TOKENS = 16
_MOST_EXPERTS = 1024
_DECIDED = 3.0
"""Deviations of a score over tokens by which the least that is chosen lies above all others."""


def sendings(graph: Graph) -> tuple[Sending, ...]:
    """Returns every choice of the largest scores that the pass makes for each token on its own."""
    found = []
    for value in graph.values:
        if value.op != "topk" or value.output != 1 or not value.is_data or value.tensor.ndim < 2:
            continue
        scores = graph.values[value.inputs[0]].tensor
        kept, among = value.shape[-1], scores.shape[-1]
        rows = scores.numel() // max(1, among)
        if scores.shape[:-1] != value.shape[:-1] or not kept < among <= _MOST_EXPERTS:
            continue
        if rows >= _LEAST_TOKENS and has_arithmetic(scores) and not scores.is_meta:
            chosen = _for_all(scores.reshape(rows, among).float(), kept)
            found.append(Sending(name=value.module, tokens=rows, among=among, chosen=chosen))
    return tuple(found)


def _for_all(scores_NE: Tensor, kept: int) -> tuple[int, ...]:
    """Returns the experts that are chosen for every token, by far; none where scores of tokens
    decide.
    """
    if not bool(scores_NE.isfinite().all()):
        return ()
    mean_E, deviation = scores_NE.mean(0), float(scores_NE.std(0).max())
    order_E = mean_E.argsort(descending=True)
    first, rest = order_E[:kept], order_E[kept:]
    gap = float((scores_NE[:, first].amin(1) - scores_NE[:, rest].amax(1)).min())
    is_theirs = deviation > 0 and gap > _DECIDED * deviation
    return tuple(sorted(torch.as_tensor(first).tolist())) if is_theirs else ()
