"""Trainings of ours in which a Post-LN learned nothing: its size, its rates and its warm-up.

A deeper one, a wider one, a higher rate and a shorter warm-up are none of them easier to train
(results/rate_transfer has the depths), so that each bounds a region, and not a point.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTraining:
    """Post-LN decoders of one size that stayed at the frequencies of tokens."""

    sublayers: int
    width: int
    lowest_rate: float
    """The lowest rate at which it learned nothing, as at every higher one that was tried."""
    highest_rate: float
    """The highest rate that was tried."""
    source: str
    """The folder of the study."""


WARMUP_UPDATES = 80
"""The warm-up that all of them had, under AdamW."""

FAILED_TRAININGS = (
    FailedTraining(
        sublayers=16,
        width=512,
        lowest_rate=5e-4,
        highest_rate=4e-3,
        source="results/rates_at_size",
    ),
    FailedTraining(
        sublayers=32,
        width=64,
        lowest_rate=2.5e-4,
        highest_rate=2e-3,
        source="results/rate_transfer",
    ),
    FailedTraining(
        sublayers=16,
        width=64,
        lowest_rate=2e-3,
        highest_rate=8e-3,
        source="results/rate_transfer",
    ),
    FailedTraining(
        sublayers=8,
        width=64,
        lowest_rate=4e-3,
        highest_rate=1.6e-2,
        source="results/rate_transfer",
    ),
)

_NARROWER = 2
"""Times that a model may be narrower than the one that failed."""


def failed_like(*, sublayers: int, width: int, rate: float) -> FailedTraining | None:
    """Returns the training of ours that such a Post-LN is as hard as, the nearest in size first;
    None where none failed.

    >>> failed_like(sublayers=24, width=768, rate=1e-3).source
    'results/rates_at_size'
    >>> failed_like(sublayers=24, width=768, rate=1e-4) is None
    True
    """
    alike = [
        one
        for one in FAILED_TRAININGS
        if sublayers >= one.sublayers and _NARROWER * width >= one.width and rate >= one.lowest_rate
    ]
    return max(alike, key=lambda one: (one.width, one.sublayers), default=None)
