"""What `normscope doctor --probe` trains on."""

from ..doctor.advise.batches import Probing
from ..doctor.advise.probe import LEAST_UPDATES
from ..errors import UserError
from .target import Target


def probing_of(target: Target, updates: int) -> Probing:
    """Short trainings on the target's own batches. Raises UserError for too few updates, and a target without any."""
    if updates < LEAST_UPDATES:
        raise UserError(f"--probe {updates}: at least {LEAST_UPDATES} updates are needed to compare rates")
    if target.batches is None:
        raise UserError(
            f"--probe: {target.title} brings no batches to train on, and random tokens teach nothing; give a function "
            "that returns a mapping with the keys model, inputs, loss and batches (a data loader, or a function of the "
            "update's number), or a configuration of `normscope train`"
        )
    return Probing(batches=target.batches, updates=updates)
