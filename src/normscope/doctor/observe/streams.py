"""What every sub-layer of a recorded forward pass adds to its stream: squares, shares, and the parameters it uses."""

# B = sequences, T = tokens of each, D = width
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import in_order
from ..record import Place, Stack, SublayerMeasurements
from ..trace.graph import Graph
from ..trace.lanes import apart
from .copies import stay_copies
from .parameters import Uses
from .recipe import recipes
from .sums import BranchSum, Sums, with_gain


def measured_stacks(
    model: nn.Module, graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack]
) -> tuple[Stack, ...]:
    """The stacks with what was measured in them, gradients apart.

    Of branches that are added at once (parallel ones) the sum is that of all, and the stream what all are added to.
    Where a branch goes into several sums, as in ResiDual, it is looked at in the one with the stream that it reads;
    where one sum has several parts of the stream, as in B2T, the latest is the stream, and all are the scaled skip.
    Tokens of one sequence are those of one index of the first dimension; a stream of two dimensions is one sequence.
    """
    uses = Uses(model, graph)
    with torch.no_grad():
        seen = [_measured(graph, stream, stack, uses) for stream, stack in zip(streams, stacks, strict=True)]
        return tuple(replace(one, recipe=recipe) for one, recipe in zip(seen, recipes(graph, streams), strict=True))


def _measured(graph: Graph, stream: Stream, stack: Stack, uses: Uses) -> Stack:
    sums = Sums(graph, stream)
    measured = []
    for branch in in_order(stream):
        found = sums.of(branch)
        tensors = graph.values
        branch_square = mean_square(sums.part(found, (found.addend,)))
        skip_square = mean_square(sums.part(found, found.skips))
        both = branch_square + skip_square
        results = graph.trace.results
        outputs = tuple(place for place, result in enumerate(results) if graph.depends(result, branch.output))
        measured.append(
            SublayerMeasurements(
                stream_square=mean_square(tensors[found.stream].tensor),
                branch_square=branch_square,
                sum_square=mean_square(tensors[found.sum].tensor),
                correlation=mean_cosine(_apart(tensors[found.stream].tensor, stream)),
                share=branch_square / both if both else 0.0,
                parameters=uses.of(branch, found.addend),
                matrices=uses.matrices(branch),
                reaches_output=bool(outputs),
                outputs=outputs,
                place=_place(graph, branch, found),
            )
        )
    # In order, the early branches come first.
    first = min(stream.before, len(measured) - 1)
    return replace(
        stack,
        source_square=measured[first].stream_square,
        end_square=mean_square(graph.values[with_gain(graph, stream.end)].tensor),
        sublayers=tuple(replace(one, measured=seen) for one, seen in zip(stack.sublayers, measured, strict=True)),
        streams_stay_copies=stay_copies(graph, stream),
        end=with_gain(graph, stream.end),
    )


def _place(graph: Graph, branch: Branch, found: BranchSum) -> Place:
    sources = (*branch.reads, *branch.memory)
    between = {n for source in sources for n in graph.between(source, found.addend)} - set(sources)
    beside = {n for number in between for n in graph.predecessors[number]} - between
    return Place(stream=found.stream, addend=found.addend, inputs=tuple(sorted(beside | set(sources))))


def _apart(x: Tensor, stream: Stream) -> Tensor:
    """Of several streams in (B, ..., n, D) or (B, ..., n·D), each as sequences of its own: (B · n, T, D)."""
    if stream.streams == 1 or (x_NnD := apart(x, stream.streams, stream.width)) is None:
        return x
    return x_NnD.reshape(len(x), -1, stream.streams, stream.width).transpose(1, 2).flatten(0, 1)


def mean_square(x: Tensor) -> float:
    """E‖x‖²/d over the tokens of (..., D): the mean of all squares."""
    return float(torch.linalg.vector_norm(x, dtype=_wide(x)).square()) / x.numel()


def mean_cosine(x: Tensor) -> float | None:
    """Mean cosine of the vectors at different tokens of one sequence, of (B, ..., D), or of (T, D): one sequence.

    Over all pairs of a sequence it is (‖Σu‖² - Σ‖u‖²) / (T(T-1)), u the vectors at length 1. None for one token.
    """
    if x.ndim < 2:
        return None
    x_BTD = x.reshape(1 if x.ndim == 2 else len(x), -1, x.shape[-1]).to(_wide(x))
    tokens = x_BTD.shape[1]
    if tokens < 2:
        return None
    unit_BTD = nn.functional.normalize(x_BTD, dim=-1, eps=torch.finfo(x_BTD.dtype).tiny)
    pairs_B = unit_BTD.sum(1).square().sum(-1) - unit_BTD.square().sum((1, 2))
    return float(pairs_B.mean()) / (tokens * (tokens - 1))


def _wide(x: Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64
