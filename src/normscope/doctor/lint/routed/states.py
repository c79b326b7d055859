"""States that sub-layers carry from token to token."""

from collections.abc import Iterator

from ..patient import Patient, initial_weights
from ..rule import Fault, rule


@rule("growing-state", initial_weights)
def growing_state(patient: Patient) -> Iterator[Fault]:
    """Scans and other mixers that add ever more from token to token."""
    seen = patient.observed.partly.growing_along
    if seen:
        yield Fault(
            where=seen,
            message=(
                f"what {len(seen)} sub-layers without attention add grows along the sequence: in "
                f"its last quarter it is up to {max(seen.values()):.3g} times larger than in its "
                "first half, and twice as many tokens square that number"
            ),
        )
