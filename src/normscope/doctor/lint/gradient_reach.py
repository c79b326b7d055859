"""What gets a gradient, as far as the one backward pass shows, and how rules speak of several sub-layers."""

from collections.abc import Sequence

from ..identify.found import FoundStack, FoundSublayer
from ..observe.observed import ObservedSublayer
from .matrices import parameters_by_name
from .rules import Patient
from .vectors import listed

Place = tuple[FoundStack, FoundSublayer, ObservedSublayer]


def is_closed(place: Place) -> bool:
    """Whether the branch adds nothing: exactly nothing, or what is lost when it is added in any usual dtype."""
    return place[2].branch_square <= 1e-14 * place[2].stream_square


def is_shut_by_gate(place: Place) -> bool:
    """Whether it adds nothing because it is multiplied by 0."""
    return is_closed(place) and place[1].branch_scale == 0


def was_differentiated(patient: Patient) -> bool:
    """Whether there was a loss with any gradient at all."""
    return any(norm != 0 for norm in patient.observed.gradient_norms.values())


def gets_gradient(patient: Patient, name: str) -> bool:
    """Whether a parameter that asks for a gradient gets one other than 0; without a loss it is taken to."""
    parameter = parameters_by_name(patient).get(name)
    if parameter is None or not parameter.requires_grad:
        return False
    return not was_differentiated(patient) or patient.observed.gradient_norms.get(name, 0.0) != 0


def trained_in(patient: Patient, place: Place) -> list[str]:
    """Names of the parameters of a sub-layer that ask for a gradient; none where it is frozen."""
    weights = parameters_by_name(patient)
    return [name for name in place[2].parameters if name in weights and weights[name].requires_grad]


def is_cut_off(patient: Patient, stack: FoundStack) -> bool:
    """Whether it is an encoder that is only read by cross-attention which adds nothing: no gradient comes back yet.

    Its gates and weights wait for those of the decoder, as in ReZero.
    """
    pairs = list(zip(patient.stacks, patient.observed.stacks, strict=True))
    for other, seen in pairs[patient.stacks.index(stack) + 1 :]:
        places = [(other, f, s) for f, s in zip(other.sublayers, seen.sublayers, strict=True)]
        reading = [place for place in places if place[1].kind == "cross_attention"]
        if reading:
            return all(is_closed(place) for place in reading)
    return False


def names(places: Sequence[Place]) -> str:
    """Their paths for a report."""
    return listed(found.name for _, found, _ in places)
