"""Hidden units that carry next to nothing, whatever their matrices are."""

from collections.abc import Iterator

from ..patient import Patient, initial_weights
from ..rule import Fault, rule


@rule("units-cut-off", initial_weights)
def units_cut_off(patient: Patient) -> Iterator[Fault]:
    """Feed-forwards whose units share 1 among them, or lie at a bound for nearly every token."""
    seen = patient.observed.partly.cut_units
    shared = [one for one in seen if one.shared_by]
    if shared:
        units = shared[0].shared_by
        yield Fault(
            where=shared,
            message=(
                f"a softmax over {units} hidden units stands where a nonlinearity does, in "
                f"{len(shared)} feed-forwards: units share 1 among them, each is some {units} "
                "times smaller than behind a nonlinearity, and so is the branch"
            ),
            fix="take a nonlinearity of each unit by itself, as SiLU or GELU; a softmax is for the "
            "choice among experts, and for attention's keys",
        )
    cut = [one for one in seen if one.cut]
    if cut:
        yield Fault(
            where=cut,
            message=(
                f"a bound cuts off {min(one.cut for one in cut):.0%} of the hidden units' values "
                f"or more, in {len(cut)} feed-forwards: what is cut off is one number for all "
                "tokens, and gets no gradient"
            ),
            fix="set the bound far above what units start with: 7 and more is usual",
        )
