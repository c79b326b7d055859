"""What is still in memory."""

import gc

import torch


def begin() -> None:
    """What lives now is not counted: to go through all that a test session holds takes seconds each
    time.
    """
    gc.collect()
    gc.freeze()


def live_tensors() -> int:
    """Tensors made since `begin` that Python can still reach."""
    gc.collect()
    # By type, not isinstance: that would ask lazy objects of other libraries for their class, and
    # some warn.
    return sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects())
