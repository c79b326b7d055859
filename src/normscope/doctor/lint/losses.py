"""The conclusions from a checkpoint's losses on one batch, under its own wiring and under another
reading.
"""

import math

from ..measured import ModelMeasurements

_LEARNED_NATS = 0.3
"""The distance in nats below uniform guessing that weights reach under one of the readings, for
their losses to decide between the two.
"""
_LOWER = 0.05
"""The share of what the weights have learned by which a loss is clearly lower, and the nats at
least.
"""
MUCH_LOWER = 0.2
"""The same for a loss that leaves no doubt."""


def gained(seen: ModelMeasurements, nats: float | None) -> float | None:
    """Returns how much lower the loss is under another reading, as a share of what the weights have
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
