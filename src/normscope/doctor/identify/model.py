"""Find the residual streams of any PyTorch model, and name the placement of every sub-layer in them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..find.streams import Stream, find_streams
from ..trace.graph import Graph
from ..trace.operations import Trace, recorded
from ..trace.outputs import tensors_in
from ..trace.unchanged import looked_at
from .found import FoundStack
from .stacks import as_stacks

Inputs = Mapping[str, Any] | Sequence[Any] | Tensor | Callable[[nn.Module], Any]


def find_stacks(model: nn.Module, inputs: Inputs) -> list[FoundStack]:
    """The stacks of a model in the order of its forward pass, from one pass in evaluation mode.

    inputs: what its forward is called with, by keyword (a mapping), by position (a sequence, or one tensor), or a
    function that runs it and returns its output. Names of classes and modules play no part; module names are only
    reported. The model is left as it was: weights, gradients, buffers, mode, and all random number generators.

    Raises ValueError where a model cannot be looked at: on the meta device, with weights that are not finite, with a
    forward pass that raises or returns no floating-point tensor, or without any residual sum.
    """
    _, streams = streams_in(model, inputs)
    return as_stacks(streams)


def streams_in(model: nn.Module, inputs: Inputs) -> tuple[Graph, list[Stream]]:
    """What `find_stacks` goes by: the recorded pass as a graph, and the streams in it. Raises as it does."""
    _check_weights(model)
    with looked_at(model):
        graph = Graph(_recorded(model, inputs))
        streams = find_streams(graph)
    if not streams:
        raise ValueError(
            "no residual stream found: nothing in the forward pass has the form x + F(x) with weights in F"
        )
    return graph, streams


def call_with(model: nn.Module, inputs: Inputs) -> Any:
    """The model's output for these inputs."""
    if callable(inputs):
        return inputs(model)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(inputs) if isinstance(inputs, Tensor) else model(*inputs)


def _check_weights(model: nn.Module) -> None:
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if weight.is_meta:
            raise ValueError(f"{name} is on the meta device: give the model weights first (to_empty, then initialise)")
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise ValueError(f"{name} has values that are not finite")


def _recorded(model: nn.Module, inputs: Inputs) -> Trace:
    given = dict(inputs) if isinstance(inputs, Mapping) else inputs
    tensors = None if callable(inputs) else [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    try:
        trace = recorded(model, lambda: call_with(model, inputs), tensors)
    except Exception as error:
        raise ValueError(f"the forward pass raised {type(error).__name__}: {error}") from error
    found = list(tensors_in(trace.output))
    if not any(tensor.is_floating_point() for tensor in found):
        what = "integers only" if found else f"no tensor, but {type(trace.output).__name__}"
        raise ValueError(f"the forward pass returned {what}; the model must give hidden states, logits or a loss")
    return trace
