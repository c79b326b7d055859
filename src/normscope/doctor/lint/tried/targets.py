"""The targets of the loss on the user's own labels."""

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


_HALF = 0.5


@rule("targets-smoothed-away", a_known_loss)
def targets_smoothed_away(patient: Patient) -> Iterator[Fault]:
    """Targets of which the right class has less than all others together."""
    share = _targets(patient).right_share
    if share < _HALF:
        yield Fault(
            where="",
            message=(
                f"of each target {100 * share:.2g} % are the right class's, and the others share "
                f"{100 * (1 - share):.2g} %, all alike: targets that sum to more than 1, as where "
                "each class gets what all were to share in smoothing"
            ),
        )


@rule("softmax-elsewhere")
def softmax_elsewhere(patient: Patient) -> Iterator[Fault]:
    """A loss whose softmax does not run over the classes of a token."""
    seen = patient.observed
    heads = [one for one in seen.output_matrices if one.outputs > 1]
    if seen.softmax_elsewhere and heads:
        yield Fault(
            where=heads,
            message=(
                "the loss's gradient sums to 0 over the outputs of a sequence and not over those "
                "of a token: its softmax runs over a dimension that is not the classes, or over "
                "outputs in another shape"
            ),
        )
