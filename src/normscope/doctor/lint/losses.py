"""What a checkpoint's losses on one batch tell, read as it is and read otherwise."""

import math

from ..measured import ModelMeasurements

_LEARNED_NATS = 0.3
"""How far below uniform guessing weights lie under one of the readings, for their losses to tell
the two apart.
"""
_LOWER = 0.05
"""By which share of what the weights have learned a loss is clearly lower; and by how many nats at
least."""
MUCH_LOWER = 0.2
"""The same for a loss that leaves no doubt."""


def gained(seen: ModelMeasurements, nats: float | None) -> float | None:
    """How much lower the loss is under another reading, as a share of what the weights have
    learned, which counts as a nat at least; below 0 where it is higher.

    None where the two do not tell: weights that have learned too little under either, losses too
    near to each other, and losses that are not known.
    """
    if seen.loss_nats is None or nats is None or seen.classes is None:
        return None
    learned = math.log(seen.classes) - min(seen.loss_nats, nats)
    share = (seen.loss_nats - nats) / max(learned, 1.0)
    # Not of losses that are not finite either.
    return share if learned >= _LEARNED_NATS and abs(share) >= _LOWER else None
