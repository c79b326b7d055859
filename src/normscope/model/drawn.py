"""The standard deviations that initial weights are drawn with, read off the very functions that draw them."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..placement import Placement, Site, StackShape, SublayerKind
from .initialisation import SCHEMES, Draw

ATTENTION_WEIGHTS = ("query", "key", "value", "output")
FFN_WEIGHTS = ("ffn_in", "ffn_out")


def weights_of(kind: SublayerKind) -> tuple[str, ...]:
    """The weight matrices of a sub-layer, by the names that initialisation uses."""
    return FFN_WEIGHTS if kind == "feed_forward" else ATTENTION_WEIGHTS


def weight_std(placement: Placement, weight: str, site: Site) -> float:
    """Of the entries of one weight matrix before the first update, biases apart."""
    shape = _shape(weight, site.stack)
    draw = SCHEMES[placement.initialisation].draws[weight]
    return _std(draw, shape, placement.gain(weight, site), placement.unit_vectors.get(weight))


def embedding_std(placement: Placement) -> float:
    """Of the entries of the embedding before the first update, before the placement scales its rows."""
    # No scheme looks at the size of the vocabulary.
    shape = (1000, placement.stack.width)
    draw = SCHEMES[placement.initialisation].embedding
    return _std(draw, shape, placement.embedding_gain(), placement.unit_vectors.get("embedding"))


def _shape(weight: str, stack: StackShape) -> tuple[int, int]:
    """(out, in) of a weight matrix."""
    if weight in FFN_WEIGHTS:
        return (stack.ffn_width, stack.width) if weight == "ffn_in" else (stack.width, stack.ffn_width)
    sides = {"query": stack.query_width, "output": stack.query_width}
    inner = sides.get(weight, stack.key_value_width)
    return (stack.width, inner) if weight == "output" else (inner, stack.width)


def _std(draw: Draw, shape: tuple[int, int], gain: float, unit_dimension: int | None) -> float:
    if unit_dimension is not None:
        # Vectors of length 1: their entries' mean square is 1 / their number.
        return float(shape[unit_dimension] ** -0.5)
    with torch.no_grad(), _Asked() as asked:
        # A tensor without memory: what is drawn is not needed, only the distribution that torch is asked for.
        draw(torch.empty(shape, device="meta"), gain)
    if asked.std is not None:
        return float(asked.std)
    with torch.no_grad():
        weight = torch.empty(shape)
        draw(weight, gain)
    return float(weight.std())


class _Asked(TorchFunctionMode):
    """Notes the standard deviation of the random numbers that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.std: float | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.uniform_:
            _, low, high = args
            self.std = (high - low) / math.sqrt(12)
        elif func is nn.init.uniform_:
            self.std = (kwargs["b"] - kwargs["a"]) / math.sqrt(12)
        elif func is Tensor.normal_:
            _, _, self.std = args
        elif func is nn.init.normal_:
            self.std = kwargs["std"]
        return func(*args, **kwargs)
