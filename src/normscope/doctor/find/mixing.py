"""Whether a part of a recorded pass mixes positions: by its operations where these tell, else by what it computes."""

# N = tokens, D = width
import torch

from ..trace.flow import PRODUCTS
from ..trace.graph import Graph
from ..trace.operations import Ref, TracedValue

_BY_NUMBER = frozenset(
    {"add", "sub", "rsub", "mul", "div", "neg", "abs", "pow", "square", "sqrt", "rsqrt", "reciprocal", "exp", "log"}
    | {"tanh", "sigmoid", "relu", "gelu", "silu", "mish", "elu", "leaky_relu", "hardswish", "softplus", "erf", "clamp"}
    | {"clone", "detach", "alias", "_to_copy"}
)
"""Operations on each number alone, or on numbers in the same place."""
_CUTTING = frozenset({"slice", "split", "split_with_sizes", "chunk", "narrow"})
_REARRANGED = frozenset({"view", "reshape", "_unsafe_view"})


def mixes_positions(graph: Graph, read: int, output: int) -> bool | None:
    """Whether a change of one token changes the output at another one; None where no change shows anywhere.

    Raises what computing again raises.
    """
    x, y = graph.values[read].tensor, graph.values[output].tensor
    tokens = x.numel() // x.shape[-1]
    if y.numel() % tokens or keeps_rows(graph, read, output):
        return False
    before = _rows(y, tokens)
    generator = torch.Generator().manual_seed(0)
    changes = False
    for token in dict.fromkeys((0, tokens // 2, tokens - 1)):
        changed = x.clone().contiguous()
        row = changed.view(tokens, -1)[token]
        row += torch.randn(row.shape, generator=generator).to(row) * (1 + row.abs().mean())
        after = _rows(graph.trace.again({read: changed}, output), tokens)
        rows = int((after - before).abs().amax(-1).gt(1e-6 * before.abs().amax()).sum())
        if rows > 1:
            return True
        changes = changes or rows > 0
    # A last matrix that starts at zero hides what comes before it.
    return False if changes else None


def _rows(y: torch.Tensor, tokens: int) -> torch.Tensor:
    return y.reshape(tokens, -1)


def keeps_rows(graph: Graph, read: int, output: int) -> bool:
    """Whether every step on the way is known to compute each token from that token alone.

    That is what multiplies rows with a matrix from the right, works on each number alone, or cuts the last dimension.
    False says nothing: there are other ways to do so.
    """
    x = graph.values[read].tensor
    tokens = x.numel() // x.shape[-1]
    inside = graph.between(read, output)
    return all(_by_row(graph, graph.values[n], set(inside), tokens) for n in inside[1:])


def _by_row(graph: Graph, value: TracedValue, inside: set[int], tokens: int) -> bool:
    given = [graph.values[n] for n in graph.predecessors[value.number] if n in inside]
    if value.call is None or not value.shape or any(_row_count(one) != tokens for one in (value, *given)):
        return False
    if value.op in PRODUCTS:
        first = value.call.args[1 if value.op == "addmm" else 0]
        return (
            value.op in ("mm", "addmm") and isinstance(first, Ref) and [one.number for one in given] == [first.number]
        )
    if value.op in _REARRANGED:
        return True
    same = all(one.shape[:-1] == value.shape[:-1] for one in given)
    if value.op in _CUTTING:
        return same
    return same and value.op in _BY_NUMBER and all(one.shape == value.shape for one in given)


def _row_count(value: TracedValue) -> int:
    return value.tensor.numel() // value.shape[-1] if value.shape and value.shape[-1] else 0
