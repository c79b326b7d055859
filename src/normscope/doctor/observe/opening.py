"""Which weights get a gradient once others have moved, where a whole sub-layer gets none in the first update."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...measure.line import Line
from ...measure.unchanged import left_unchanged
from ..record import ModelMeasurements, Stack, Sublayer
from ..trace.forward import tensors_in
from .loss import loss_of

ROUNDS = 3
"""Behind a head of zeros a gate of zero opens in the second update, and the matrix of zeros behind it in the third."""
_STEP = 1e-3
"""What a weight moves by in each: an update of Adam at a usual rate."""


def with_opening(
    stacks: Sequence[Stack],
    measured: ModelMeasurements,
    model: nn.Module,
    run: Callable[[], Any],
    loss: Callable[[Any], Tensor] | None,
    written: Sequence[Tensor] = (),
) -> tuple[tuple[Stack, ...], ModelMeasurements]:
    """With `opening` and `reaches_loss`, where no parameter of a whole sub-layer gets a gradient; else as it was.

    run: the forward pass. loss: as in `backward`. written: tensors that the pass writes into. One forward and backward
    pass, and one for each update that is looked at; the model is left as it was, bit by bit.
    """
    sublayers = [sublayer.measured for stack in stacks for sublayer in stack.sublayers]
    shut = _shut([one.parameters for one in sublayers], measured.gradient_norms)
    if not shut:
        return tuple(stacks), measured
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    with left_unchanged(model, written), torch.enable_grad():
        gradients, heard = _gradients(run(), loss, weights)
        opened = _opened(lambda: _gradients(run(), loss, weights)[0], weights, gradients, shut)

    def complete(sublayer: Sublayer) -> Sublayer:
        outputs = sublayer.measured.outputs
        reaches = not outputs or any(heard[place] for place in outputs)
        return replace(sublayer, measured=replace(sublayer.measured, reaches_loss=reaches))

    found = tuple(replace(stack, sublayers=tuple(map(complete, stack.sublayers))) for stack in stacks)
    return found, replace(measured, opening=frozenset(opened))


def _shut(sublayers: Collection[Sequence[str]], norms: Mapping[str, float]) -> list[list[str]]:
    """The trained parameters of each sub-layer none of which gets a gradient, where anything gets one."""
    if not any(norms.values()):
        return []
    trained = [[name for name in names if name in norms] for names in sublayers]
    return [names for names in trained if names and not any(norms[name] for name in names)]


def _opened(
    again: Callable[[], Mapping[str, Tensor]],
    weights: Mapping[str, nn.Parameter],
    gradients: Mapping[str, Tensor],
    shut: Sequence[Sequence[str]],
) -> set[str]:
    """Move what gets a gradient, look who else gets one then, and move that too, until every sub-layer has opened."""
    direction = {name: -gradient.sign() for name, gradient in gradients.items()}
    opened: set[str] = set()
    for _ in range(ROUNDS):
        with Line(weights, direction).at(_STEP):
            new = {name: -gradient.sign() for name, gradient in again().items() if name not in direction}
        opened |= new.keys()
        direction |= new
        if not new or all(opened.intersection(names) for names in shut):
            break
    return opened


def _gradients(
    output: Any, loss: Callable[[Any], Tensor] | None, weights: Mapping[str, nn.Parameter]
) -> tuple[dict[str, Tensor], tuple[bool, ...]]:
    """Gradients other than 0 by name, and of every tensor of the output whether the loss depends on it."""
    value, _ = loss_of(output, loss)
    tensors = list(tensors_in(output, inside_objects=False))
    asked = [tensor for tensor in tensors if tensor.requires_grad]
    found = torch.autograd.grad(value, [*asked, *weights.values()], allow_unused=True)
    reached = {id(tensor) for tensor, gradient in zip(asked, found, strict=False) if gradient is not None}
    gradients = {
        name: gradient.detach()
        for name, gradient in zip(weights, found[len(asked) :], strict=True)
        if gradient is not None and bool(gradient.any())
    }
    return gradients, tuple(id(tensor) in reached for tensor in tensors)
