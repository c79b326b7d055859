"""Steps beside the stream at the wrong place: a feed-forward's curve, a softmax of logits, the shift of targets."""

from collections.abc import Iterator

from ....report.words import kind_name
from ...result import Severity
from ..patient import Patient, branch_names
from ..rule import Fault, rule
from ..structure import in_blocks


@rule(
    "misplaced-curve",
    Severity.WARNING,
    title="a feed-forward without its curve between two matrices",
    why="Two matrices with no curve between them are one; behind the last one a curve such as ReLU makes every branch "
    "push the stream to one side, so that it drifts and its tokens become alike.",
    reference="Vaswani et al. 2017, arXiv:1706.03762, section 3.3: max(0, x W1) W2",
)
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


@rule(
    "scores-not-logits",
    Severity.WARNING,
    title="a cross-entropy of what are no logits",
    why="A cross-entropy takes its own softmax. Of probabilities it can fall to ln V - 1 at most and has next to no "
    "gradient, so that a model seems to learn slowly; of what is cut off at 0 no class can be unlikely.",
    reference="torch.nn.functional.cross_entropy: the input is expected to hold logits",
)
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


@rule(
    "targets-misplaced",
    Severity.WARNING,
    title="targets that are not the next token's",
    why="A model that sees a token and is asked for the same one learns to copy; asked for the one after the next, it "
    "has learnt another task than generation sets.",
    reference="github.com/huggingface/transformers: models for causal language modelling shift labels themselves",
)
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
