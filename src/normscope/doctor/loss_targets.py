"""The targets of a loss, as its gradient at the logits shows them: which places count, and which
class is wanted there.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTargets:
    """The targets of a cross-entropy of logits on one batch."""

    places: int
    """Tokens, or sequences, that have logits."""
    counted: int
    """The number of these whose logits the loss depends on."""
    weight: float
    """The weight of all that count together: 1 where the loss is their mean, their number where it
    is a sum; smaller by the share that is smoothed over all classes; NaN for a loss that is no
    cross-entropy.
    """
    commonest: int
    """The class that is wanted at the most places ..."""
    commonest_times: int
    """... and at how many."""
    padding: int = 0
    """Places that count, and are wanted to be padding: several in a row at the end of a sequence,
    or at its beginning."""

    right_share: float = math.nan
    """The share of a target that goes to its right class, where all other classes get the same; NaN
    where not known.
    """

    @property
    def times_mean(self) -> float:
        """The factor between the loss and the mean over the places that count; 1 where that is not
        known.
        """
        return 1.0 if math.isnan(self.weight) else self.weight
