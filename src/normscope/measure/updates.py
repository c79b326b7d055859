"""What a model's weights are after so many updates of an optimiser, with the model left as it is."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .unchanged import restored


def weights_after(
    model: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    loss: Callable[[int], Tensor],
    updates: Sequence[int] = (1,),
) -> dict[int, dict[str, Tensor]]:
    """Copies of all trainable weights after each of these updates, by parameter name, in evaluation mode.

    make: a fresh optimiser over the model's parameters, with its rate; any of torch's kind. loss: runs the model on the
    batch of an update, counted from 1, and gives one number. Dropout is off, so that the same weights and batches
    give the same updates. Weights, buffers, `.grad`, modes and random generators are at the end what they were; what
    `make` or `loss` draws is drawn anew. Takes max(updates) forward and backward passes.

    Raises ValueError for no update or one below 1, and for a loss that is not one finite number.
    """
    if not updates or min(updates) < 1:
        raise ValueError(f"updates are counted from 1, and at least one is needed; got {list(updates)}")
    found = {}
    with restored(model), torch.enable_grad():
        optimizer = make(model)
        for update in range(1, max(updates) + 1):
            # The gradients that are there are the caller's.
            for weight in model.parameters():
                weight.grad = None
            value = loss(update)
            if value.numel() != 1 or not bool(value.isfinite().all()):
                what = float(value.detach()) if value.numel() == 1 else f"a tensor of shape {tuple(value.shape)}"
                raise ValueError(f"the loss of update {update} must be one finite number, got {what}")
            value.reshape(()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if update in updates:
                found[update] = {
                    name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad
                }
    return found
