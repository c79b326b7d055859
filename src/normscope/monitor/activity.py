"""What stands still inside a sub-layer: attention that looks at one token, and hidden units that no token moves."""

# N = tokens, H = hidden units, Q = rows of scores (queries, of every head and sequence), K = keys
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..doctor.find.branches import Branch
from ..doctor.find.streams import Stream
from ..doctor.identify.stacks import branches_of
from ..doctor.observe.streams import mean_cosine
from ..doctor.observe.sums import with_gain
from ..doctor.record import Stack
from ..doctor.trace.forward import main_tensor, named_in
from ..doctor.trace.graph import Graph
from ..doctor.trace.mixtures import SOFTMAX
from ..doctor.trace.operations import TracedValue

_LOGITS_OF = SOFTMAX | {"_log_softmax"}
_MASKED_BELOW = -5e3
"""Keys with a lower score are masked: libraries add -1e4 and less for it."""
_STILL = 1e-3
"""A hidden unit whose standard deviation over tokens is below this share of the layer's root mean square is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackActivity:
    """Of one stack; the tuples are in the order of `Stack.sublayers`."""

    end_correlation: float | None
    """Mean cosine of the vectors that leave the stack, at different tokens of one sequence; None for one token."""
    entropies: tuple[float | None, ...]
    """As `attention_entropy` has them."""
    idle: tuple[float | None, ...]
    """As `idle_units` has them."""


def look_inside(graph: Graph, stream: Stream, stack: Stack) -> StackActivity:
    """What of a recorded pass shows that sub-layers stand still, or that tokens have become alike."""
    branches = branches_of(stack, stream)
    with torch.no_grad():
        return StackActivity(
            end_correlation=mean_cosine(graph.values[with_gain(graph, stream.end)].tensor),
            entropies=tuple(attention_entropy(graph, branch) for branch in branches),
            idle=tuple(idle_units(graph, branch) for branch in branches),
        )


def attention_entropy(graph: Graph, branch: Branch) -> float | None:
    """Mean entropy of attention's weights, over the largest that the number of keys allows: 0 to 1.

    1 is a plain mean of all tokens that may be seen, 0 a copy of one of them. Queries that may see one key say nothing
    and are left out. None for a branch without a softmax over scores, and without a query that has a choice.
    """
    found = [value for n in branch.computed if (value := graph.values[n]).op in SOFTMAX and n not in _mixing(graph)]
    if not found:
        return None
    shares = [share for value in found for share in _entropies(value.tensor, graph.values[value.inputs[0]].tensor)]
    return math.fsum(shares) / len(shares) if shares else None


def _mixing(graph: Graph) -> set[int]:
    """Softmaxes that weigh sub-layers, not tokens."""
    return {mixture.weights for mixture in graph.mixtures.values()}


def _entropies(weights: Tensor, scores: Tensor) -> list[float]:
    """The mean over the rows that have a choice, in a list; empty without one."""
    with torch.no_grad():
        weights_QK = weights.detach().reshape(-1, weights.shape[-1]).float()
        scores_QK = scores.detach().reshape(-1, scores.shape[-1]).float()
        keys_Q = (scores_QK > _MASKED_BELOW).sum(-1)
        free_Q = keys_Q > 1
        if not bool(free_Q.any()):
            return []
        entropy_Q = torch.special.entr(weights_QK).sum(-1)
        return [float((entropy_Q[free_Q] / keys_Q[free_Q].log()).mean())]


def idle_units(graph: Graph, branch: Branch) -> float | None:
    """The share of a feed-forward sub-layer's hidden units that are the same for every token: dead or saturated.

    A unit of ReLU that is never active, one of a sigmoid that is always open: neither gets a gradient through its
    activation, nor tells one token from another. Hidden are the values that the last weight matrix reads. None for
    what is no feed-forward, and where the values of a token do not stand in one row.
    """
    if branch.kind != "feed_forward":
        return None
    products = [n for n in branch.computed if graph.is_weight_product(graph.values[n])]
    read = graph.values[branch.reads[0]].tensor
    tokens = read.numel() // read.shape[-1]
    if len(products) < 2 or tokens < 2:
        return None
    hidden = next((n for n in graph.factors(graph.values[products[-1]]) if graph.values[n].is_data), None)
    if hidden is None or graph.values[hidden].tensor.numel() // graph.values[hidden].shape[-1] != tokens:
        return None
    with torch.no_grad():
        hidden_NH = graph.values[hidden].tensor.detach().reshape(tokens, -1).float()
        size = hidden_NH.square().mean().sqrt()
        return float((hidden_NH.std(0, correction=0) <= _STILL * size).float().mean())


def logit_deviation(graph: Graph, streams: Sequence[Stream]) -> float | None:
    """The logits' standard deviation about each token's mean, root mean square over tokens.

    Logits are what a softmax is taken of behind the last stack, else what the model's output calls so. None where
    neither is there.
    """
    behind = [
        value for value in graph.values if value.op in _LOGITS_OF and graph.depends(value.number, streams[-1].end)
    ]
    logits = [_classes_last(graph, value) for value in behind]
    if not logits and named_in(graph.trace.output, "logits") is not None:
        named = main_tensor(graph.trace.output)
        logits = [named] if named is not None else []
    if not logits:
        return None
    with torch.no_grad():
        # A loss may come in chunks of tokens.
        rows = [scores.detach().reshape(-1, scores.shape[-1]).float().var(-1, correction=0) for scores in logits]
        return float(torch.cat(rows).mean().sqrt())


def _classes_last(graph: Graph, softmax: TracedValue) -> Tensor:
    """What a softmax is taken of, with the dimension that it adds up over as the last."""
    scores = graph.values[softmax.inputs[0]].tensor
    along = softmax.call.args[1] if softmax.call is not None else -1
    return scores.movedim(along, -1)
