"""What goes into a model's forward pass and what comes out, and whether the numbers in it are finite."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
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


def tensors_in(output: Any, *, inside_objects: bool = True) -> Iterator[Tensor]:
    """Every tensor of an output, in order.

    inside_objects: whether to look into objects that are parts of it too, such as caches; not only into the output
    itself, and into what mappings, lists and tuples hold.
    """
    if isinstance(output, Tensor):
        yield output
    else:
        for part in _parts(output):
            if isinstance(part, Tensor | Mapping | list | tuple) or inside_objects:
                yield from tensors_in(part, inside_objects=inside_objects)


def main_tensor(output: Any) -> Tensor | None:
    """The logits where the output names some, else its first floating-point tensor with two dimensions or more.

    None where there is no such tensor.
    """
    logits = named_in(output, "logits")
    if isinstance(logits, Tensor):
        return logits
    found = tensors_in(output, inside_objects=False)
    return next((tensor for tensor in found if tensor.is_floating_point() and tensor.ndim >= 2), None)


def named_in(output: Any, name: str) -> Any:
    """What an output holds under a name, as a mapping or as an attribute; None where it has no such name."""
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _parts(output: Any) -> list[Any]:
    if isinstance(output, Mapping):
        return list(output.values())
    if isinstance(output, list | tuple):
        return list(output)
    return list(vars(output).values()) if hasattr(output, "__dict__") else []


def floating(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and buffers of a usual precision, by name; not the masks, which are kept in buffers with -inf."""
    masks = {name for name, buffer in model.named_buffers() if buffer.is_floating_point() and _is_mask(buffer)}
    for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
        usual = parameter.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        is_plain = not parameter.is_meta and parameter.layout == torch.strided and parameter.numel()
        if usual and is_plain and name not in masks:
            yield name, parameter.data  # not `detach()`, whose version autograd would see change


def _is_mask(buffer: torch.Tensor) -> bool:
    """Whether infinite entries are all that is not finite in a buffer; NaN is no mask."""
    if buffer.is_meta or buffer.layout != torch.strided or not buffer.numel():
        return False
    return bool(torch.isinf(buffer).any()) and not bool(torch.isnan(buffer).any())


def is_finite(weight: torch.Tensor) -> bool:
    """Whether no entry is infinite or NaN."""
    # One pass without a copy, where isfinite takes three.
    return all(math.isfinite(bound) for bound in torch.aminmax(weight))
