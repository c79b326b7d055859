"""Measurements of what every sub-layer of a recorded forward pass adds to its stream: squares,
shares, and the parameters it uses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...measure.passes import has_arithmetic, mean_square
from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import branches_of
from ..measured import SublayerMeasurements
from ..record import Stack
from ..trace.graph import Graph
from ..trace.operations import UNREPEATABLE, Origin, apart
from .norms import norm_uses, over_features
from .path import ROUNDING, curves_of, gates_of, precision, shut_by, skip_is_stopped
from .recipe import recipe_of
from .sums import LIGHT, branch_sums, part_of, with_gain

# n = streams, N = tokens, D = width


_WITHIN = 1e-4
"""The share of the largest entry by which two values may differ. Weights that differ as little as
training makes them differ move streams further apart.
"""
_MOVED = 0.1
"""The noise added to weights, in units of their own root mean square, or of `_SMALL` where that is
larger.
"""
_SMALL = 0.1


def stay_copies(graph: Graph, stream: Stream) -> bool | None:
    """True where streams are copies after every sub-layer, and are so too when all trained
    parameters have moved.

    Then nothing can tell them apart, and they do the work of one. None of one stream, of streams
    that do not start as copies, and where a part of the pass cannot be computed again.

    Each sub-layer is computed again from the recorded streams before it, with noise on all trained
    parameters.
    """
    if stream.streams == 1 or not stream.start_equal:
        return None
    recorded = [graph.values[join].tensor for join in stream.joins]
    if not all(_are_copies(x, stream) for x in recorded):
        return False
    moved = _moved(graph)
    try:
        before: Mapping[int, Tensor] = {}
        for join in stream.joins:
            if not _are_copies(graph.trace.again({**moved, **before}, join), stream):
                return False
            before = {join: graph.values[join].tensor}
    except UNREPEATABLE:
        return None
    return True


def _are_copies(x: Tensor, stream: Stream) -> bool:
    x_NnD = apart(x, stream.streams, stream.width)
    return x_NnD is not None and float((x_NnD - x_NnD[:, :1]).abs().max()) <= _WITHIN * float(
        x_NnD.abs().max()
    )


def _moved(graph: Graph) -> dict[int, Tensor]:
    """Returns every trained parameter with noise added, by number."""
    generator = torch.Generator().manual_seed(0)
    moved = {}
    for value in graph.values:
        if value.op == "leaf" and value.origin == Origin.TRAINABLE and has_arithmetic(value.tensor):
            weight = value.tensor.detach()
            size = max(float(weight.float().square().mean().sqrt()), _SMALL)
            noise = torch.randn(weight.shape, generator=generator).to(weight)
            moved[value.number] = weight + _MOVED * size * noise
    return moved


def _uses(graph: Graph, branch: Branch, addend: int) -> tuple[str, ...]:
    """Names of the parameters that F is computed with, and of biases added to its output, in order
    of use.
    """
    biased = []
    number = addend
    while (
        number != branch.output and (step := graph.step(number)) is not None and step.kind in LIGHT
    ):
        if step.kind == "same" and graph.values[number].op in ("add", "sub"):
            biased.append(number)
        (number,) = step.sources
    numbers = [*branch.computed, *reversed(biased)]
    return tuple(dict.fromkeys(name for number in numbers for name in graph.parameters(number)))


def _matrices(graph: Graph, branch: Branch) -> tuple[str, ...]:
    """Names of what F multiplies data with in products and convolutions, or makes such matrices
    from, in order.

    Biases, gains of norms and tables that are looked up are not among them.
    """
    factors = [n for number in branch.computed for n in graph.factors(graph.values[number])]
    given = [n for n in factors if not graph.values[n].is_data]
    return tuple(dict.fromkeys(name for n in given for name in graph.parameters(n)))


# B = sequences, T = tokens of each, D = width


def measured_stacks(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack]
) -> tuple[Stack, ...]:
    """Returns the stacks with what was measured in them, gradients apart.

    Of branches that are added at once (parallel ones) the sum is that of all, and the stream what
    all are added to. Where a branch goes into several sums, as in ResiDual, it is looked at in the
    one with the stream that it reads; where one sum has several parts of the stream, as in B2T, the
    latest is the stream, and all are the scaled skip. Tokens of one sequence are those of one index
    of the first dimension; a stream of two dimensions is one sequence.
    """
    with torch.no_grad():
        seen = [
            _measured(graph, stream, stack) for stream, stack in zip(streams, stacks, strict=True)
        ]
        return tuple(
            # Theory is of norms over the features.
            replace(one, recipe=recipe_of(graph, n, streams, one))
            if all(map(over_features, one.norm_uses))
            else one
            for n, one in enumerate(seen)
        )


def _measured(graph: Graph, stream: Stream, stack: Stack) -> Stack:
    branches = branches_of(stack, stream)
    rounded = [(value.number, value.op) for value in graph.values if value.op in ROUNDING]
    measured = []
    for branch, found in zip(branches, branch_sums(graph, stream, branches), strict=True):
        x, total = (graph.values[n].tensor for n in (found.stream, found.sum))
        branch_square = mean_square(part_of(graph, found, (found.addend,)))
        both = branch_square + mean_square(part_of(graph, found, found.skips))
        results = enumerate(graph.trace.results)
        outputs = tuple(place for place, result in results if graph.depends(result, branch.output))
        measured.append(
            SublayerMeasurements(
                stream_square=mean_square(x),
                branch_square=branch_square,
                sum_square=mean_square(total),
                correlation=mean_cosine(_apart(x, stream)),
                share=branch_square / both if both else 0.0,
                parameters=_uses(graph, branch, found.addend),
                matrices=_matrices(graph, branch),
                reaches_output=bool(outputs),
                outputs=outputs,
                shut_by=shut_by(graph, branch, found),
                gates=gates_of(graph, branch, found),
                skip_stopped=skip_is_stopped(graph, stream, found),
                rounded_by=next(
                    (op for number, op in rounded if graph.depends(number, found.sum)), ""
                ),
                precision=str(precision(graph, branch) or "").removeprefix("torch."),
                curves=curves_of(graph, branch),
                place=found,
            )
        )
    # In order, the early branches come first.
    first, end = min(stream.before, len(measured) - 1), with_gain(graph, stream.end)
    return replace(
        stack,
        source_square=measured[first].stream_square,
        end_square=mean_square(graph.values[end].tensor),
        sublayers=tuple(
            replace(one, measured=seen) for one, seen in zip(stack.sublayers, measured, strict=True)
        ),
        streams_stay_copies=stay_copies(graph, stream),
        end=end,
        norm_uses=norm_uses(graph, stream),
    )


def _apart(x: Tensor, stream: Stream) -> Tensor:
    """Splits several streams in (B, ..., n, D) or (B, ..., n·D) into sequences of their own: (B ·
    n, T, D).
    """
    if stream.streams == 1 or (x_NnD := apart(x, stream.streams, stream.width)) is None:
        return x
    return x_NnD.reshape(len(x), -1, stream.streams, stream.width).transpose(1, 2).flatten(0, 1)


def mean_cosine(x: Tensor) -> float | None:
    """Returns the mean cosine of the vectors at different tokens of one sequence, of (B, ..., D),
    or of (T, D): one sequence.

    Over all pairs of a sequence it is (‖Σu‖² - Σ‖u‖²) / (T(T-1)), u the vectors at length 1. None
    for one token.
    """
    if x.ndim < 2:
        return None
    x_BTD = x.reshape(1 if x.ndim == 2 else len(x), -1, x.shape[-1])
    x_BTD = x_BTD.to(torch.float32 if x.device.type == "mps" else torch.float64)
    tokens = x_BTD.shape[1]
    if tokens < 2:
        return None
    unit_BTD = nn.functional.normalize(x_BTD, dim=-1, eps=torch.finfo(x_BTD.dtype).tiny)
    pairs_B = unit_BTD.sum(1).square().sum(-1) - unit_BTD.square().sum((1, 2))
    return float(pairs_B.mean()) / (tokens * (tokens - 1))
