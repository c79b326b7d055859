"""What a recorded pass does on a stream's way: stops its gradient, adds its start again, draws at random."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from ..find.branches import Branch
from ..find.refined import bits
from ..find.streams import Stream
from ..trace.flow import PRODUCTS
from ..trace.graph import Graph
from ..trace.mixtures import FUSED
from ..trace.operations import memory_of, names_by_memory
from .sums import BranchSum

_DRAWN = frozenset({"bernoulli", "native_dropout", "uniform", "rand", "rand_like", "normal", "randn", "randn_like"})


def skip_is_stopped(graph: Graph, stream: Stream, found: BranchSum) -> bool:
    """Whether the skip of a sum comes from earlier sums, and on every way from there through a `detach`.

    What a stream starts from may be given without a gradient, as tables that stay as they are.
    """
    before = {join for join in stream.joins if join != found.sum and graph.depends(found.stream, join)}
    ways = list(_ways_back(graph, found, before))
    return bool(ways) and all(ways)


def _ways_back(graph: Graph, found: BranchSum, before: set[int]) -> Iterator[bool]:
    """For every way from a sum back to an earlier one, whether a gradient is stopped on it."""
    start = (found.sum, False)
    seen, todo = {start}, [start]
    while todo:
        number, stopped = todo.pop()
        if number in before:
            yield stopped
            continue
        step = graph.step(number)
        stopped = stopped or graph.values[number].op == "detach"
        new = [(n, stopped) for n in (step.sources if step else ())]
        todo += [place for place in new if place not in seen]
        seen.update(new)


def precision(graph: Graph, branch: Branch) -> torch.dtype | None:
    """The narrowest dtype that a branch's matrix products are made in; None without any."""
    values = [graph.values[n] for n in branch.computed]
    made = [v.tensor.dtype for v in values if v.op in PRODUCTS or FUSED in v.op]
    return min((dtype for dtype in made if dtype.is_floating_point), key=lambda dtype: dtype.itemsize, default=None)


def added_again(model: nn.Module, graph: Graph, streams: Sequence[Stream]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What is the same for every input, differs from token to token, and is added to a stream several times."""
    names = names_by_memory([*model.named_parameters(), *model.named_buffers()])
    return tuple(found for stream in streams for found in _added_again(graph, stream, names))


def _added_again(graph: Graph, stream: Stream, names: Mapping[int, str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    groups: list[tuple[torch.Tensor, str, tuple[int, ...]]] = []
    for number in bits(stream.values):
        value, step = graph.values[number], graph.step(number)
        if value.op not in ("add", "sub") or step is None or step.kind != "same" or value.tensor.is_meta:
            continue
        for given in (n for n in value.inputs if not graph.values[n].is_data):
            tensor = graph.values[given].tensor
            if tensor.numel() <= stream.width or tensor.shape[-1] != stream.width:
                continue
            leaves = [memory_of(leaf.tensor) for leaf in graph.trace.leaves(given)]
            name = next((names[leaf] for leaf in leaves if leaf in names), "")
            at = next((n for n, (one, *_) in enumerate(groups) if _equal(one, tensor)), None)
            if at is None:
                groups.append((tensor, name, (number,)))
            else:
                groups[at] = (tensor, groups[at][1] or name, (*groups[at][2], number))
    yield from ((name, places) for _, name, places in groups if len(places) > 1)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def random_factors(graph: Graph) -> tuple[tuple[str, int], ...]:
    """Where data is multiplied, or masked, with numbers that the pass drew, and that its results depend on."""
    drawn: set[int] = set()
    found: list[tuple[str, int]] = []
    for value in graph.values:
        from_draw = value.op in _DRAWN or any(n in drawn for n in value.inputs)
        if not from_draw:
            continue
        # A product with a drawn matrix is a projection, such as that of hashing.
        multiplies = value.op in ("mul", "div", "where", "masked_fill", "native_dropout")
        if not value.is_data:
            drawn.add(value.number)
        elif multiplies and any(graph.depends(result, value.number) for result in graph.trace.results):
            found.append((value.modules[-1] if value.modules else "", value.number))
    return tuple(found)
