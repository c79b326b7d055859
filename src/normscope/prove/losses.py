"""The user's loss on sequences of ours: where it takes its targets from what the model is given."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ..doctor.learned import Learner
from ..doctor.trace.forward import Inputs, named_in, takes_both


def loss_from_inputs(of: Learner) -> Callable[[Any, Inputs], Tensor] | None:
    """Returns the user's loss of an output and its inputs; None where its targets are those of the
    user's batch, or there is none.
    """
    given = of.inputs
    if of.loss is not None and takes_both(of.loss):
        return of.loss
    if isinstance(given, Mapping) and "labels" in given:
        return _own
    return None


def _own(output: Any, inputs: Inputs) -> Tensor:
    loss = named_in(output, "loss")
    if not isinstance(loss, Tensor):
        raise ValueError("the model was given labels and returned no loss")
    return loss


def loss_from_labels(of: Learner) -> Callable[[Any, Inputs], Tensor] | None:
    """Returns the model's own loss, where it is given labels; None for others, whose targets may be
    made of anything.
    """
    given = of.inputs
    return _own if isinstance(given, Mapping) and "labels" in given else None
