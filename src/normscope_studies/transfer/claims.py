"""What is promised of rates that carry over."""

from collections.abc import Sequence

from normscope.evidence.estimates import with_interval
from normscope.placement import named

from ..engine.claims import judged
from ..engine.page import Claim
from .config import TransferConfig
from .verdicts import Carries, Drift

_ANSWERS = {Carries.TRANSFERS: True, Carries.DRIFTS: False, Carries.UNDECIDED: None}
_PROMISED = (
    ("completep", "depth", "Dey et al. 2025, arXiv:2505.01618, section 3, with its own learning rates by layer"),
    ("depth-mup", "depth", "Yang et al. 2023, arXiv:2310.02244, section 1, of blocks of one layer"),
)
"""Promised along an axis; of the width nothing is, since no placement changes what a wider matrix does."""


def claims(config: TransferConfig, coordinates: Sequence[Drift], rates: Sequence[Drift]) -> list[Claim]:
    """Of the promised placements, that change and best rate carry over; of Pre-LN, that they do not along the depth."""
    made = []
    for placement, axis, source in _PROMISED:
        if placement in config.placements:
            title = named(placement).title
            last = [drift for drift in coordinates if drift.at == config.coordinate_updates[-1]]
            made.append(_claim(f"{title}: the first updates", placement, axis, source, last, "the change of a model"))
            made.append(_claim(f"{title}: the best rate", placement, axis, source, rates, "the best rate"))
    return made


def _claim(name: str, placement: str, axis: str, source: str, drifts: Sequence[Drift], what: str) -> Claim:
    own = [drift for drift in drifts if (drift.placement, drift.axis) == (placement, axis)]
    return judged(
        name=name,
        statement=f"{named(placement).title}: {what} is the same at every {axis}.",
        source=source,
        found=f"exponents over {axis}: "
        + "; ".join(f"{drift.of} at {drift.at} {with_interval(drift.found, 2)}" for drift in own),
        holds={f"{drift.of} at {drift.at}": _ANSWERS[drift.carries] for drift in own},
    )
