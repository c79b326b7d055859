"""Search a model for its residual streams: record one forward pass, and find the streams in it."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ...errors import in_one_line
from ...measure.unchanged import looked_at
from ..trace.forward import Inputs, call_with, floating, is_finite, tensors_in
from ..trace.graph import Graph
from ..trace.operations import Trace, TracedValue
from ..trace.recording import recorded
from .streams import Stream, find_streams


def streams_in(model: nn.Module, inputs: Inputs) -> tuple[Graph, list[Stream]]:
    """The recorded pass as a graph, and the streams in it, from one forward pass in evaluation mode.

    The model is left as it was: weights, gradients, buffers, mode, and all random number generators. On the meta device
    what a model computes is known without its values: norms, streams and branches are found, but no means over depth,
    and numbers that parameters or buffers hold are NaN.

    Raises ValueError where a model cannot be looked at: with weights that are not finite, with a forward pass that
    raises or returns no floating-point tensor, or without any residual sum.
    """
    _check_weights(model)
    with looked_at(model):
        graph = Graph(recorded_pass(model, inputs))
        streams = find_streams(graph)
    if not streams:
        raise ValueError(
            "no residual stream found: nothing in the forward pass has the form x + F(x) with weights in F; "
            + _sums(graph)
        )
    return graph, streams


def _sums(graph: Graph) -> str:
    """What sums of two values were seen instead, in words."""
    sums = [value for value in graph.values if value.op in ("add", "sub") and graph.predecessors[value.number]]
    itself = [
        value for value in sums if value.call and len(value.call.args) == 2 and value.call.args[0] == value.call.args[1]
    ]
    of_two = [value for value in sums if len(graph.predecessors[value.number]) == 2]
    if itself:
        return (
            f"{len(itself)} times a value is added to itself, first in {_place(itself[0])}: a branch that was to be "
            "added took the name of the stream, as x = F(x); x = x + x does"
        )
    if not of_two:
        return "it adds no two values that come of its input"
    last = of_two[-1]
    if all(any(n in graph.norms for n in graph.predecessors[value.number]) for value in of_two):
        return (
            f"{len(of_two)} sums add a norm to what it norms, first in {_place(of_two[0])}, and weights alone read "
            "them: the skip goes into F, as in F(norm(x) + x), and not around it"
        )
    return (
        f"{len(of_two)} sums of two values were seen, the last of shape {tuple(last.shape)} in {_place(last)}, none of "
        "which could be followed as one"
    )


def _place(value: TracedValue) -> str:
    return (value.modules[-1] if value.modules else "") or "the model itself"


def _check_weights(model: nn.Module) -> None:
    for name, weight in floating(model):
        if not is_finite(weight):
            raise ValueError(f"{name} has values that are not finite")


def recorded_pass(model: nn.Module, inputs: Inputs) -> Trace:
    """A forward pass within `looked_at`. Raises ValueError where it raises, or returns no floating-point tensor."""
    given = dict(inputs) if isinstance(inputs, Mapping) else inputs
    tensors = None if callable(inputs) else [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    try:
        trace = recorded(model, lambda: call_with(model, inputs), tensors)
    except Exception as error:
        raise ValueError(f"the forward pass raised {in_one_line(error)}") from error
    found = list(tensors_in(trace.output))
    if not any(tensor.is_floating_point() for tensor in found):
        what = "integers only" if found else f"no tensor, but {type(trace.output).__name__}"
        raise ValueError(f"the forward pass returned {what}; the model must give hidden states, logits or a loss")
    return trace
