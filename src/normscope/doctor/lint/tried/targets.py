"""What the loss asks of the model on the user's own labels."""

from collections.abc import Iterator

from ....report.words import counted
from ...loss_targets import LossTargets
from ..patient import Patient, a_known_loss
from ..rule import Fault, rule


def _targets(patient: Patient) -> LossTargets:
    seen = patient.observed.targets
    if seen is None:
        raise ValueError("the loss's targets are not known")
    return seen


_SEVERAL = 16
"""Targets that are one class by no chance."""


@rule("targets-alike", a_known_loss)
def targets_alike(patient: Patient) -> Iterator[Fault]:
    """Labels that are one class at every place that counts."""
    seen = _targets(patient)
    if seen.counted >= _SEVERAL and seen.commonest_times == seen.counted:
        yield Fault(
            where="",
            message=(
                f"all {seen.counted} targets that count are class {seen.commonest}: the loss falls "
                "to 0 whatever the model is given"
            ),
        )


@rule("padding-in-loss", a_known_loss)
def padding_in_loss(patient: Patient) -> Iterator[Fault]:
    """Padding among what the model is to predict."""
    seen = _targets(patient)
    if seen.padding:
        share = 100 * seen.padding / seen.counted
        yield Fault(
            where="",
            message=(
                f"of {seen.counted} targets that count {seen.padding} ({share:.2g} %) are padding, "
                "in runs at the ends of sequences: the loss is low because padding is easy, and "
                "its gradient is of padding"
            ),
        )


_FEW = 0.02


@rule("few-targets", a_known_loss)
def few_targets(patient: Patient) -> Iterator[Fault]:
    """Next to no token of the batch that counts."""
    seen = _targets(patient)
    if seen.counted < _FEW * seen.places:
        share = 100 * seen.counted / seen.places
        yield Fault(
            where="",
            message=(
                f"of {counted(seen.places, 'place')} with logits {seen.counted} count in the loss "
                f"({share:.2g} %), and nothing is learnt from the others"
            ),
        )
