"""The state of a model before its transplant: the placement that the doctor names in all of it."""

from torch import nn

from ..doctor.identify.stacks import find_stacks
from ..doctor.trace.forward import Inputs


def placement_of(model: nn.Module, inputs: Inputs) -> str:
    """Returns the registered name that every sub-layer of every stack has; "" where the doctor
    names none, several, or one that it is not sure of, and where it cannot look at the model.
    """
    try:
        stacks = find_stacks(model, inputs)
    except ValueError:
        return ""
    sublayers = [one for stack in stacks for one in stack.sublayers]
    names = {one.placement if one.confidence == "sure" else "" for one in sublayers}
    return names.pop() if len(names) == 1 else ""
