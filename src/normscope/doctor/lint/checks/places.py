"""Places that share a position, and sub-layers that answer at other places than they were asked."""

from collections.abc import Iterator

from ..patient import Patient
from ..rule import Fault, rule

_SHARED = 3
"""Places that have another's row by no filling."""


@rule("positions-alike")
def positions_alike(patient: Patient) -> Iterator[Fault]:
    """Positions that are added to the stream, of which several places get the same."""
    seen = patient.observed
    if seen.positions_along is not None and seen.places_shared >= _SHARED:
        yield Fault(
            where="",
            message=(
                "what is added to the stream for every input alike differs from place to place, "
                f"but {seen.places_shared} places get what an earlier one gets, number for number"
            ),
        )


@rule("mirrored-places")
def mirrored_places(patient: Patient) -> Iterator[Fault]:
    """Sub-layers of which a token that stands farther on changes outputs that stand earlier."""
    inside = [*patient.sublayers()]
    found = [one for one in inside if one.measured.mirrored]
    if found:
        yield Fault(
            where=found,
            message=(
                f"in {len(found)} of {len(inside)} sub-layers the outputs that know of a token "
                "begin one place earlier with each place that it stands farther on: some of what "
                "they add stands in the reverse order of the tokens"
            ),
        )
