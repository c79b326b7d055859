"""What a loss asks of a model, as its gradient at the logits tells: which places count, and what is
wanted there.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTargets:
    """Of a cross-entropy of logits on one batch."""

    places: int
    """Tokens, or sequences, that have logits."""
    counted: int
    """Of these, the ones whose logits the loss depends on."""
    weight: float
    """Of all that count together: 1 where the loss is their mean, their number where it is a sum;
    smaller by the share that is smoothed over all classes; NaN of no cross-entropy."""
    commonest: int
    """The class that is wanted at the most places ..."""
    commonest_times: int
    """... and at how many."""
    padding: int = 0
    """Places that count, and are wanted to be padding: several in a row at the end of a sequence,
    or at its beginning."""

    right_share: float = math.nan
    """Of a target that is its right class's, where all others get the same; NaN where not known."""

    @property
    def times_mean(self) -> float:
        """How many times the mean over what counts the loss is; 1 where that is not known."""
        return 1.0 if math.isnan(self.weight) else self.weight
