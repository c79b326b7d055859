"""What gets a gradient, as far as the one backward pass shows, and how rules speak of several sub-layers."""

from collections.abc import Sequence

from ..record import Stack, Sublayer
from .matrices import parameters_by_name
from .rules import Patient
from .vectors import listed

Place = tuple[Stack, Sublayer]


def is_closed(place: Place) -> bool:
    """Whether the branch adds nothing: exactly nothing, or what is lost when it is added in any usual dtype."""
    return place[1].measured.branch_square <= 1e-14 * place[1].measured.stream_square


def is_shut_by_gate(place: Place) -> bool:
    """Whether it adds nothing because it is multiplied by 0."""
    return is_closed(place) and place[1].branch_scale == 0


def was_differentiated(patient: Patient) -> bool:
    """Whether there was a loss with any gradient at all."""
    return any(norm != 0 for norm in patient.observed.gradient_norms.values())


def gets_gradient(patient: Patient, name: str) -> bool:
    """Whether a parameter that asks for a gradient gets one, at first or in a later update; without a loss it does."""
    parameter = parameters_by_name(patient).get(name)
    if parameter is None or not parameter.requires_grad:
        return False
    seen = patient.observed
    return not was_differentiated(patient) or seen.gradient_norms.get(name, 0.0) != 0 or name in seen.opening


def trained_in(patient: Patient, place: Place) -> list[str]:
    """Names of the parameters of a sub-layer that ask for a gradient; none where it is frozen."""
    weights = parameters_by_name(patient)
    return [name for name in place[1].measured.parameters if name in weights and weights[name].requires_grad]


def names(places: Sequence[Place]) -> str:
    """Their paths for a report."""
    return listed(sublayer.name for _, sublayer in places)
