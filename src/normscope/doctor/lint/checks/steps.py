"""Steps beside the stream at the wrong place: a feed-forward's curve, a softmax of logits, the shift of targets."""

from collections.abc import Iterator

from ....report.words import kind_name
from ..patient import Patient, branch_names
from ..rule import Fault, rule
from ..structure import in_blocks


@rule("misplaced-curve")
def misplaced_curve(patient: Patient) -> Iterator[Fault]:
    """Feed-forwards of several matrices with no curve at all, or with one on what they add."""
    for stack in patient.stacks:
        feeding = [one for one in in_blocks(stack) if one.kind == "feed_forward"]
        for where, said in (
            ("none", "multiply several matrices with nothing but sums between them, which is one matrix"),
            ("last", "end in a curve, behind their last matrix, and add what it leaves"),
        ):
            # Of a formula that no placement has, what is taken for a branch may be a part of one, as in a GRU's gates.
            found = [one for one in feeding if one.measured.curves == where and (one.placement or one.scaled_placement)]
            if found:
                yield Fault(
                    where=branch_names(found),
                    message=f"{len(found)} of {len(feeding)} sub-layers, {kind_name('feed_forward')}, {said}",
                    fix="put the curve between the matrices: down(gelu(up(x)))",
                )


@rule("scores-not-logits")
def scores_not_logits(patient: Patient) -> Iterator[Fault]:
    """Outputs that sum to 1, or are never below 0, in a loss of their softmax."""
    seen = patient.observed
    if seen.scores_are and not seen.loss_is_stand_in:
        probable = seen.scores_are == "probabilities"
        yield Fault(
            where=type(patient.model).__name__,
            message="the loss is a cross-entropy of the outputs, and these "
            + (
                "are probabilities: they sum to 1 already, a softmax before a softmax"
                if probable
                else "are cut off at 0"
            ),
            fix="return the last matrix's product as it is"
            + (", or take the loss of the log-probabilities" * probable),
        )


@rule("targets-misplaced")
def targets_misplaced(patient: Patient) -> Iterator[Fault]:
    """A model whose attention hides later tokens, and a loss whose targets are the inputs 0 or 2 places later."""
    seen = [one for sublayer in patient.sublayers() if (one := sublayer.measured.attention) is not None]
    causal = any(one.sees_later == 0 and one.sees_earlier for one in seen) and not any(one.sees_later for one in seen)
    places = patient.observed.target_places
    if causal and places in (0, 2):
        yield Fault(
            where=type(patient.model).__name__,
            message="attention hides later tokens, and the loss's targets are "
            + ("the very tokens that the model is given" if not places else "the tokens two places later"),
            fix="shift once: compare logits[:, :-1] with ids[:, 1:]"
            + ("" if not places else ", and hand unshifted labels to a model that shifts them itself"),
        )
