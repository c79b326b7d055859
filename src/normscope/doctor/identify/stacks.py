"""Find the stacks of any PyTorch model: its streams in blocks, and the placement of every sub-layer
in them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ...errors import UserError, in_one_line
from ...measure.autocast import give_back
from ...measure.unchanged import looked_at
from ...placement import StackShape
from ..find.branches import Branch, BranchKind
from ..find.segments import Segment, segments
from ..find.streams import Stream, find_streams
from ..record import Stack, Sublayer
from ..trace.forward import (
    Inputs,
    amiss_with,
    call_with,
    floating,
    is_finite,
    tensors_in,
)
from ..trace.graph import Graph
from ..trace.operations import Trace
from ..trace.recording import recorded
from .fitting import ends_with_norm, fits, sublayers
from .lanes import written_out
from .observed import StreamFormula, commonest, observed_sublayer, without_end

SEVERAL_HEADS = 2
_MIXING = ("attention", "convolution", "mixer")


def find_stacks(model: nn.Module, inputs: Inputs) -> list[Stack]:
    """Returns the stacks of a model in the order of its forward pass, from one pass in evaluation
    mode.

    inputs: what its forward is called with, by keyword (a mapping), by position (a sequence, or one
    tensor), or a function that runs it and returns its output. Names of classes and modules play no
    part; module names are only reported. The model is left as it was: weights, gradients, buffers,
    mode, and all random number generators.

    Raises ValueError where a model cannot be looked at, as `streams_in` says.
    """
    _, streams = streams_in(model, inputs)
    return as_stacks(streams)


def as_stacks(streams: Sequence[Stream]) -> list[Stack]:
    """Returns each stream with its placement, in the order given."""
    kinds = [[branch.kind for branch in stream.branches[stream.before :]] for stream in streams]
    blocks = [cut_in_blocks(some) for some in kinds]
    counts = [len(some) for some in blocks]
    memories = [_memory_of(stream, streams) for stream in streams]
    found = []
    for number, stream in enumerate(streams):
        encoder_blocks, decoder_blocks = counts[number], 0
        readers = [n for n, memory in enumerate(memories) if memory == number]
        if "cross_attention" in kinds[number]:
            # Where the memory is an input, nothing is known of its stack.
            memory = memories[number]
            encoder_blocks, decoder_blocks = (
                counts[number if memory is None else memory],
                counts[number],
            )
        elif readers:
            decoder_blocks = counts[readers[0]]
        shape = StackShape(
            kind="decoder" if "cross_attention" in kinds[number] else "encoder",
            width=stream.width,
            # With one head a norm of heads is one of the whole width; how many there are otherwise
            # does not matter.
            heads=1 if any(branch.one_head for branch in stream.branches) else SEVERAL_HEADS,
            encoder_blocks=encoder_blocks,
            decoder_blocks=decoder_blocks,
        )
        found.append(replace(_stack(stream, shape, blocks[number]), memory=memories[number]))
    return found


def _memory_of(stream: Stream, streams: Sequence[Stream]) -> int | None:
    """Number of the stream whose values this one's cross-attention reads."""
    for branch in stream.branches:
        for number, other in enumerate(streams):
            if other is not stream and any(other.values >> value & 1 for value in branch.memory):
                return number
    return None


def branches_of(stack: Stack, stream: Stream) -> tuple[Branch, ...]:
    """Returns the stream's branches in the order of the stack's sub-layers, which know their
    numbers.
    """
    return tuple(
        stream.branches[sublayer.formula.branch.branch + stream.before]
        for sublayer in stack.sublayers
    )


def _stack(stream: Stream, shape: StackShape, blocks: Sequence[Sequence[BranchKind]]) -> Stack:
    pieces = segments(stream.formula)
    # Those that blocks make.
    inner = [piece for piece in pieces if piece.branches[0].branch >= 0] or pieces
    observed = StreamFormula(stream=stream, segments=inner)
    epsilons = [
        epsilon
        for name, epsilon in stream.norms
        if name == observed.norm and not math.isnan(epsilon)
    ]
    found = fits(_in_lanes(observed, blocks), shape, blocks)
    final_norm = ends_with_norm(observed, found)
    of_blocks = sublayers(observed, shape, blocks, found, final_norm)
    early = tuple(sub for piece in pieces if piece not in inner for sub in _early(stream, piece))
    placement = commonest([sub.placement for sub in of_blocks])
    paths = zip(*(sub.name.split(".") for sub in of_blocks), strict=False)
    return Stack(
        name=".".join(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, paths)),
        blocks=len(blocks),
        placement=placement,
        scaled_placement=""
        if placement
        else commonest([sub.scaled_placement for sub in of_blocks]),
        norm=observed.norm,
        norm_epsilon=max(epsilons, key=epsilons.count, default=None),
        final_norm=final_norm,
        embedding_norm=observed.embedding_norm,
        width=stream.width,
        sublayers=early + of_blocks,
        streams=stream.streams,
        streams_start_equal=stream.start_equal,
        **stream.around,
    )


def _in_lanes(observed: StreamFormula, blocks: Sequence[Sequence[BranchKind]]) -> StreamFormula:
    """Adds a formula for each of several streams, block by block, in the form that placements
    have.
    """
    streams = observed.stream.streams
    if streams == 1:
        return observed
    block_of = [number for number, block in enumerate(blocks) for _ in block]
    pieces: dict[int, list[Segment]] = {}
    for piece in observed.segments:
        shown = without_end(piece, final_norm=False) if piece is observed.last else piece
        pieces.setdefault(block_of[piece.branches[0].branch], []).append(shown)
    return replace(observed, lanes=[written_out(some, streams) for some in pieces.values()])


def _early(stream: Stream, piece: Segment) -> list[Sublayer]:
    """Returns the branches before the first block, which no placement speaks of."""
    branches = [(term, stream.branches[term.branch + stream.before]) for term in piece.branches]
    return [
        observed_sublayer(piece, term, branch, shown=piece, block=0) for term, branch in branches
    ]


def wired_like(stack: Stack) -> Literal["Pre-LN", "Post-LN", ""]:
    """Names the placement that a stack resembles by where its norms stand: on inputs of sub-layers
    alone, or on sums alone; "" for others.
    """
    formulas = [sublayer.formula for sublayer in stack.sublayers if sublayer.block > 0]
    if all(formula.reads_norm and not formula.sum_is_normed for formula in formulas):
        return "Pre-LN"
    return "Post-LN" if all(formula.sum_is_normed for formula in formulas) else ""


def cut_in_blocks(kinds: Sequence[BranchKind]) -> tuple[tuple[BranchKind, ...], ...]:
    """Blocks that are all alike where there are such: attention, convolutions and mixers may take
    each other's places.

    Otherwise a block ends where a feed-forward does and something else follows. One block where
    nothing repeats.
    """
    places = ["mixing" if kind in _MIXING else kind for kind in kinds]
    # Stacks without feed-forwards alternate between ways of mixing: what they have in common says
    # nothing of blocks.
    some, lengths = list(places if "feed_forward" in places else kinds), range(1, len(kinds) + 1)
    length = next(
        n for n in lengths if len(kinds) % n == 0 and some[:n] * (len(kinds) // n) == some
    )
    if length < len(kinds):
        starts = list(range(0, len(kinds), length))
    else:
        after = pairwise(places)
        starts = [0, *(n for n, (one, two) in enumerate(after, 1) if one == "feed_forward" != two)]
    ends = [*starts[1:], len(kinds)]
    return tuple(tuple(kinds[start:end]) for start, end in zip(starts, ends, strict=True))


def streams_in(
    model: nn.Module, inputs: Inputs, *, known_finite: bool = False
) -> tuple[Graph, list[Stream]]:
    """Returns the recorded pass as a graph, and the streams in it, from one forward pass in
    evaluation mode.

    The model is left as it was: weights, gradients, buffers, mode, and all random number
    generators. On the meta device what a model computes is known without its values: norms, streams
    and branches are found, but no means over depth, and numbers that parameters or buffers hold are
    NaN.

    known_finite: that all weights are, which then are not gone through for it.

    Raises ValueError where a model cannot be looked at: with weights that are not finite, with a
    forward pass that raises or returns no floating-point tensor, or without any residual sum.
    """
    for name, weight in () if known_finite else floating(model):
        if not is_finite(weight):
            raise ValueError(f"{name} has values that are not finite")
    with looked_at(model):
        graph = Graph(recorded_pass(model, inputs))
        streams = find_streams(graph)
    if not streams and (amiss := amiss_with(model, inputs)):
        raise ValueError(amiss)
    if not streams:
        raise ValueError(
            "no residual stream found: nothing in the forward pass has the form x + F(x) with "
            "weights in F; " + _sums(graph)
        )
    return graph, streams


_ITSELF = "the model itself"


def _sums(graph: Graph) -> str:
    """Describes the sums of two values that were seen instead, in words."""
    sums = [
        value
        for value in graph.values
        if value.op in ("add", "sub") and graph.predecessors[value.number]
    ]
    itself = [value for value in sums if len(value.args) == 2 and value.args[0] == value.args[1]]
    of_two = [value for value in sums if len(graph.predecessors[value.number]) == 2]
    if itself:
        return (
            f"{len(itself)} times a value is added to itself, first in "
            f"{itself[0].module or _ITSELF}: a branch that was to be added took the name of the "
            "stream, as x = F(x); x = x + x does"
        )
    if not of_two:
        return "it adds no two values that come of its input"
    last = of_two[-1]
    if all(any(n in graph.norms for n in graph.predecessors[value.number]) for value in of_two):
        return (
            f"{len(of_two)} sums add a norm to what it norms, first in "
            f"{of_two[0].module or _ITSELF}, and weights alone read them: the skip goes into F, as "
            "in F(norm(x) + x), and not around it"
        )
    return (
        f"{len(of_two)} sums of two values were seen, the last of shape {tuple(last.shape)} in "
        f"{last.module or _ITSELF}, none of which could be followed as one"
    )


def recorded_pass(model: nn.Module, inputs: Inputs) -> Trace:
    """Returns a forward pass within `looked_at`. Raises ValueError where it raises, or returns no
    floating-point tensor.
    """
    given = dict(inputs) if isinstance(inputs, Mapping) else inputs
    tensors = (
        None
        if callable(inputs)
        else [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    )
    try:
        trace = recorded(model, lambda: call_with(model, inputs), tensors)
    except UserError:  # says already which file and what to do
        raise
    except Exception as error:
        # What casts its input itself may be in need of it.
        if give_back():
            return recorded_pass(model, inputs)
        said = f"the forward pass raised {in_one_line(error)}"
        raise ValueError("; ".join(filter(None, [said, amiss_with(model, inputs)]))) from error
    found = list(tensors_in(trace.output))
    if not any(tensor.is_floating_point() for tensor in found):
        numbers = "complex numbers" if any(map(torch.is_complex, found)) else "integers"
        what = f"{numbers} only" if found else f"no tensor, but {type(trace.output).__name__}"
        raise ValueError(
            f"the forward pass returned {what}; the model must give hidden states, logits or a loss"
        )
    return trace
