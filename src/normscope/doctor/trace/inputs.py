"""What a model is called with, in the forms in which a user may give it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

Inputs = Mapping[str, Any] | Sequence[Any] | Tensor | Callable[[nn.Module], Any]
"""What a model's forward is called with, by keyword (a mapping), by position (a sequence, or one tensor), or a function
that runs the model and returns its output."""


def call_with(model: nn.Module, inputs: Inputs) -> Any:
    """The model's output for these inputs."""
    if callable(inputs):
        return inputs(model)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(inputs) if isinstance(inputs, Tensor) else model(*inputs)
