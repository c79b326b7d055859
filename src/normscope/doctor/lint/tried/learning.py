"""A copy that was trained: whether it has learned a task that models like it learn, and nothing
that cannot be known.
"""

from collections.abc import Iterator

from ....report.words import learning_rate, significant
from ...learned import LEARNED, NOT_LEARNED, Learned
from ..patient import Patient, a_training
from ..rule import Fault, rule

_KNOWN = 0.7
"""The share of the loss of guessing below which targets that nothing tells are known: 128
sequences have hundreds of them, over which a guess varies by a hundredth."""


def _learned(patient: Patient) -> Learned:
    found = patient.learning.learned
    if found is None:
        raise ValueError("no copy was trained")
    return found


@rule("answers-known", a_training)
def answers_known(patient: Patient) -> Iterator[Fault]:
    """Yields a loss below that of guessing at targets that were drawn by chance."""
    seen = _learned(patient)
    if seen.unknowable_nats is None or not seen.unknowable_nats < _KNOWN * seen.chance_nats:
        return
    yield Fault(
        where="",
        message=(
            f"after {seen.updates} updates a copy names tokens that nothing tells with a loss of "
            f"{significant(seen.unknowable_nats, 3)} nats, where guessing has "
            f"{significant(seen.chance_nats, 3)} at best"
        ),
    )


@rule("does-not-learn", a_training)
def does_not_learn(patient: Patient) -> Iterator[Fault]:
    """Yields a task that two references learn and the model does not, at any rate tried."""
    seen = _learned(patient)
    if seen.verdict != "does not" or _in_training_alone(seen):
        return
    nats = "a loss that is not finite" if seen.nats is None else significant(seen.nats, 3) + " nats"
    beside = " and ".join(significant(one, 3) for one in seen.references)
    yield Fault(
        where="",
        message=(
            f"does not learn {seen.task}: {nats} after {seen.updates} updates, where the reference "
            f"({seen.reference}) has {beside} and guessing {significant(seen.chance_nats, 3)}"
        ),
    )


def _in_training_alone(seen: Learned) -> bool:
    learned = seen.training_nats is not None and seen.training_nats <= LEARNED * seen.chance_nats
    return learned and (seen.nats is None or seen.nats >= NOT_LEARNED * seen.chance_nats)


@rule("learned-in-training-alone", a_training)
def learned_in_training_alone(patient: Patient) -> Iterator[Fault]:
    """Yields a task that is learned in training mode and not known in evaluation mode."""
    seen = _learned(patient)
    if not _in_training_alone(seen):
        return
    after = "not finite" if seen.nats is None else significant(seen.nats, 3) + " nats"
    yield Fault(
        where="",
        message=(
            f"after {seen.updates} updates the loss of a copy is "
            f"{significant(seen.training_nats, 3)} nats in training mode, and {after} in "
            f"evaluation mode, on the same sequences"
        ),
    )


@rule("learns-at-another-rate", a_training)
def learns_at_another_rate(patient: Patient) -> Iterator[Fault]:
    """Yields a task that is not learned at the user's rate, at which the reference learns it."""
    seen = _learned(patient)
    wanted = seen.wanted_rate
    if seen.verdict != "learns" or wanted not in seen.failed_rates or wanted is None:
        return
    if seen.reference_rate != wanted:
        return
    yield Fault(
        where="",
        message=(
            f"does not learn {seen.task} at your rate {learning_rate(wanted, 2)}, at which the "
            f"reference ({seen.reference}) does; it learns at {learning_rate(seen.rate, 2)}"
        ),
        in_code=False,
    )
