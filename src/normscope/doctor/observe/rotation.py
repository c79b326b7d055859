"""Rotary positions in a recorded pass: by which angles queries and keys are turned."""

from collections.abc import Iterable, Iterator
from itertools import combinations

import torch
from torch import Tensor

from ..trace.graph import Graph

_NEARLY = 1e-2
"""The deviation of cos² + sin² from 1 that tables in half precision leave."""


def rotary_angles(
    graph: Graph, computed: Iterable[int], product: int, scores: int
) -> tuple[float, ...]:
    """Returns by what angle each feature of a head is turned from one token to the next, 0 of one
    that is not turned; empty where no such tables were read.

    Between a product that makes queries and the scores there are then two multiplications by
    tables (tokens, features) of which the squares add up to 1 (Su et al. 2021, eq. 34).
    """
    tables = list(_tables(graph, computed, product, scores))
    for first, second in combinations(tables, 2):
        if first.shape != second.shape or first.shape[0] < 2:
            continue
        if (first.square() + second.square() - 1).abs().max() > _NEARLY:
            continue
        turned = torch.atan2(
            first[0] * second[1] - second[0] * first[1], first[0] * first[1] + second[0] * second[1]
        ).abs()
        width = graph.values[scores_factor(graph, scores)].shape[-1]
        missing = max(0, width - len(turned))
        return (*turned.tolist(), *[0.0] * missing)
    return ()


def scores_factor(graph: Graph, scores: int) -> int:
    """Returns the first factor of the product that makes scores: queries, or keys."""
    return graph.predecessors[scores][0]


def _tables(graph: Graph, computed: Iterable[int], product: int, scores: int) -> Iterator[Tensor]:
    """Yields what values are multiplied with on their way from one to the other, (tokens,
    features), that is no data.
    """
    for number in computed:
        on_the_way = graph.depends(number, product) and graph.depends(scores, number)
        value = graph.values[number]
        if value.op != "mul" or not on_the_way:
            continue
        for factor in value.inputs:
            by = graph.values[factor]
            if by.is_data or by.tensor is None or by.tensor.is_complex():
                continue
            table = by.tensor.detach().double().squeeze()
            while table.ndim > 2:
                table = table[0]
            if table.ndim == 2:
                yield table
