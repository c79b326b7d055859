"""What the instant advice goes by: a few numbers about a model's first update."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ..record import Stack
from .first_update import FirstUpdate

FADED = 0.1
"""Share of the spread between tokens at which an update has made the answers to them alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Rates in decades (log10)."""

    optimizer: str
    reach: float
    """Where the first update is as long as the weights."""
    fading: float
    """Where the spread between tokens has fallen to `FADED`; `rise` where it never does below that."""
    rise: float
    """Where the loss along the update is back at its start; the largest rate looked at where it never is."""
    sublayers: float
    """log10 of how many all stacks have."""
    width: float
    """log10 of the widest stream's width."""
    normed_sums: float
    """Share of the sub-layers whose residual sum is normed, as in Post-LN."""
    normed_depth: float
    """That share times the decades by which there are more sub-layers than ten."""
    normed_branches: float
    """Share of the sub-layers whose branch is normed before it is added, as in Peri-LN."""

    def values(self) -> Mapping[str, float]:
        """All numbers by name."""
        return {name: value for name, value in asdict(self).items() if name != "optimizer"}


def facts_of(seen: FirstUpdate, *, optimizer: str, stacks: Sequence[Stack]) -> Facts:
    """What the rule is asked with. What accumulates over a training is not seen in its first update, and the formulas
    that were found are what tells of it."""
    rise = seen.rise_rate or seen.rates[-1]
    fading = seen.spread_falls_to(FADED)
    formulas = [sublayer.formula for stack in stacks for sublayer in stack.sublayers]
    count = max(1, len(formulas))
    normed = sum(formula.sum_is_normed for formula in formulas) / count
    return Facts(
        optimizer=optimizer,
        reach=math.log10(seen.reach),
        fading=math.log10(rise if fading is None else min(fading, rise)),
        rise=math.log10(rise),
        sublayers=math.log10(count),
        width=math.log10(max([stack.width for stack in stacks], default=1)),
        normed_sums=normed,
        normed_depth=normed * (math.log10(count) - 1),
        normed_branches=sum(formula.branch_is_normed for formula in formulas) / count,
    )
