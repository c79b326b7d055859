"""What a model's output holds: tensors, in containers and data classes of any library."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


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
