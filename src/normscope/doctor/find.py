"""Find the residual streams of any PyTorch model, and name the placement of every sub-layer in them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .findings import FoundStack
from .graph import Graph
from .stacks import as_stacks
from .stream import find_streams
from .trace import Trace, recorded
from .unchanged import looked_at

Inputs = Mapping[str, Any] | Sequence[Any] | Tensor | Callable[[nn.Module], Any]


def find_stacks(model: nn.Module, inputs: Inputs) -> list[FoundStack]:
    """The stacks of a model in the order of its forward pass, from one pass in evaluation mode.

    inputs: what its forward is called with, by keyword (a mapping), by position (a sequence, or one tensor), or a
    function that runs it and returns its output. Names of classes and modules play no part; module names are only
    reported. The model is left as it was: weights, gradients, buffers, mode, and all random number generators.

    Raises ValueError where a model cannot be looked at: on the meta device, with weights that are not finite, with a
    forward pass that raises or returns no floating-point tensor, or without any residual sum.
    """
    _check_weights(model)
    with looked_at(model):
        trace = _recorded(model, inputs)
        graph = Graph(trace)
        streams = find_streams(graph)
    if not streams:
        raise ValueError(
            "no residual stream found: nothing in the forward pass has the form x + F(x) with weights in F"
        )
    return as_stacks(streams)


def _check_weights(model: nn.Module) -> None:
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if weight.is_meta:
            raise ValueError(f"{name} is on the meta device: give the model weights first (to_empty, then initialise)")
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise ValueError(f"{name} has values that are not finite")


def _recorded(model: nn.Module, inputs: Inputs) -> Trace:
    given: Sequence[Any] | Mapping[str, Any] | None
    if callable(inputs):
        run, given = (lambda: inputs(model)), None
    elif isinstance(inputs, Mapping):
        run, given = (lambda: model(**inputs)), inputs
    else:
        positional = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        run, given = (lambda: model(*positional)), positional
    tensors = None if given is None else [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    try:
        trace = recorded(model, run, tensors)
    except Exception as error:
        raise ValueError(f"the forward pass raised {type(error).__name__}: {error}") from error
    found = list(_tensors(trace.output))
    if not any(tensor.is_floating_point() for tensor in found):
        what = "integers only" if found else f"no tensor, but {type(trace.output).__name__}"
        raise ValueError(f"the forward pass returned {what}; the model must give hidden states, logits or a loss")
    return trace


def _tensors(output: Any) -> list[Tensor]:
    """The tensors of an output, in containers and data classes of any library."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    elif not isinstance(output, list | tuple):
        output = list(vars(output).values()) if hasattr(output, "__dict__") else []
    return [tensor for part in output for tensor in _tensors(part)]
