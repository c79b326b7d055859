"""The inputs of a model by the names of its forward's arguments, and with others in their place."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..trace.forward import Inputs


def named_inputs(model: nn.Module, inputs: Inputs) -> dict[str, Tensor]:
    """Returns the tensors that a model's forward is given, by the names of its arguments."""
    if callable(inputs):
        return {}
    if isinstance(inputs, Mapping):
        pairs: list[tuple[str, Any]] = [*inputs.items()]
    else:
        pairs = [*zip(_arguments(model, inputs), _as_list(inputs), strict=True)]
    return {name: value for name, value in pairs if isinstance(value, Tensor)}


def with_changed(model: nn.Module, inputs: Any, changed: Mapping[str, Tensor]) -> Inputs:
    """The same inputs with other tensors for some names."""
    if isinstance(inputs, Mapping):
        return {**inputs, **changed}
    names = _arguments(model, inputs)
    both = zip(names, _as_list(inputs), strict=True)
    return tuple(changed.get(name, value) for name, value in both)


def _as_list(inputs: Any) -> list[Any]:
    return [inputs] if isinstance(inputs, Tensor) else list(inputs)


def _arguments(model: nn.Module, inputs: Any) -> list[str]:
    """Names of the arguments that inputs by position become; "input 1" and so on where unknown."""
    given = len(_as_list(inputs))
    try:
        parameters = [*inspect.signature(model.forward).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    named = [one.name for one in parameters if one.kind == one.POSITIONAL_OR_KEYWORD]
    return (named + [f"input {n}" for n in range(len(named) + 1, given + 1)])[:given]
