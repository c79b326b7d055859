"""Gates where their curve is flat: σ or tanh of trained parameters alone, with next to no slope left."""

from torch import Tensor, nn

from ..record import FlatGate
from ..trace.operations import Origin, Trace

FLAT = 0.01
"""Of the greatest slope: σ beyond 6.0 and tanh beyond 3.0."""


def flat_gates(model: nn.Module, trace: Trace) -> tuple[FlatGate, ...]:
    """The parameters whose σ or tanh is flat for half of the entries or more, in the order in which they are read.

    What depends on the model's input is no gate of this kind: there the slope is another for every token.
    """
    names = {weight.untyped_storage()._cdata: name for name, weight in model.named_parameters()}
    found: dict[str, float] = {}
    for value in trace.values:
        if value.op in _SLOPES and value.origin == Origin.TRAINABLE and not value.tensor.is_meta:
            slope = _SLOPES[value.op](value.tensor.double())
            share = float((slope < FLAT).double().mean()) if slope.numel() else 0.0
            for leaf in trace.leaves(value.number):
                name = names.get(leaf.tensor.untyped_storage()._cdata)
                if name is not None and share >= 0.5:
                    found[name] = max(share, found.get(name, 0.0))
    return tuple(FlatGate(name=name, share=share) for name, share in found.items())


def _of_sigmoid(y: Tensor) -> Tensor:
    return 4 * y * (1 - y)


def _of_tanh(y: Tensor) -> Tensor:
    return 1 - y * y


_SLOPES = {"sigmoid": _of_sigmoid, "tanh": _of_tanh}
"""Of a curve's value its slope, over the greatest."""
