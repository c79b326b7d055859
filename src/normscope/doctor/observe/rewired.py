"""A model's loss were its stacks wired as the other of Pre-LN and Post-LN, with every tensor in its place.

Nothing is built anew: the recorded pass is computed again piece by piece, each sub-layer and each norm as it is, and
the pieces are put together the other way round.
"""

# x = the stream, F = a sub-layer
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import branches_of, wired_like
from ..record import Stack
from ..trace.graph import Graph
from .gradients import loss_of
from .sums import BranchSum, Sums, with_gain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sublayer:
    """A sub-layer and its norm, to be computed apart from each other."""

    graph: Graph
    sum: BranchSum
    reads: int
    """The value that the sub-layer reads: the stream, or its norm."""
    into_norm: int
    norm: int
    """With its gain."""

    def added(self, x: Tensor, others: Mapping[int, Tensor]) -> Tensor:
        """F(x) as it stands in the sum. others: values of other stacks, which cross-attention reads."""
        branch = self.graph.trace.again({**others, self.reads: x}, self.sum.addend)
        given = {n: torch.zeros_like(self.graph.values[n].tensor) for n in self.sum.addends}
        return self.graph.trace.again({**given, self.sum.addend: branch}, self.sum.sum)

    def normed(self, x: Tensor) -> Tensor:
        return self.graph.trace.again({self.into_norm: x}, self.norm)


def rewired_loss_nats(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack], loss: Callable[[Any], Tensor] | None
) -> float | None:
    """The loss on the same batch with x + F(norm(x)) in the place of norm(x + F(x)), or the other way round.

    Of several stacks all that are wired as the first are rewired. A norm at the end stays. None where the first is like
    neither, where a loss on random targets would have to stand in, and where the pass cannot be computed in pieces.
    """
    wired = wired_like(stacks[0])
    with torch.no_grad():
        if not wired or loss_of(graph.trace.output, loss)[1]:
            return None
        ends: dict[int, Tensor] = {}
        try:
            for stream, stack in zip(streams, stacks, strict=True):
                if wired_like(stack) == wired:
                    ends |= _rewired(graph, stream, stack, ends, pre=wired == "Pre-LN")
            return float(loss_of(_output(graph, ends), loss)[0])
        except (ValueError, RuntimeError, IndexError):
            # Experts, and memory that is written piece by piece, cannot be computed again with other values.
            return None


def _rewired(graph: Graph, stream: Stream, stack: Stack, others: dict[int, Tensor], *, pre: bool) -> dict[int, Tensor]:
    """The value that the rest of the model reads, by its number. pre: whether the stack is wired as Pre-LN now.

    others: the same of earlier stacks.
    """
    sums = Sums(graph, stream)
    branches = zip(branches_of(stack, stream), stack.sublayers, strict=True)
    parts = [_sublayer(graph, sums.of(branch), branch, pre=pre) for branch, one in branches if one.block > 0]
    x = graph.values[parts[0].sum.stream].tensor
    for one in parts:
        x = one.normed(x + one.added(x, others)) if pre else x + one.added(one.normed(x), others)
    return {parts[-1].sum.sum if pre else parts[-1].norm: x}


def _sublayer(graph: Graph, of: BranchSum, branch: Branch, *, pre: bool) -> _Sublayer:
    """Raises ValueError where a sub-layer has no norm of its own."""
    if not pre:
        (norm,) = graph.norms_of.get(of.sum, [])
        return _Sublayer(graph=graph, sum=of, reads=of.stream, into_norm=of.sum, norm=with_gain(graph, norm))
    norm = graph.under(branch.reads[0], "same", "scale")
    if norm not in graph.norms:
        raise ValueError("a sub-layer reads no norm")
    gained = with_gain(graph, norm)
    return _Sublayer(graph=graph, sum=of, reads=gained, into_norm=graph.norms[norm].source, norm=gained)


def _output(graph: Graph, ends: dict[int, Tensor]) -> Any:
    """The model's output with other values at the ends of its stacks. Raises ValueError for what is not understood."""
    leaves, form = tree_flatten(graph.trace.output)
    results = iter(graph.trace.results)
    made = [graph.trace.again(ends, next(results)) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    if next(results, None) is not None:
        raise ValueError("the output holds tensors in objects")
    return tree_unflatten(made, form)
