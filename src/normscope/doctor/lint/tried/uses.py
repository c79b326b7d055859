"""Inputs that the output does not know, or knows where it must not."""

import sys
from collections.abc import Iterator

from ...result import Severity
from ..patient import Patient, a_law, listed
from ..rule import Fault, rule


def _of(share: float) -> str:
    return f"{100 * share:.2g} %"


@rule("input-unread", a_law("uses"))
def input_unread(patient: Patient) -> Iterator[Fault]:
    """Inputs that change nothing of the output."""
    uses = patient.tried.uses
    if uses is not None and uses.unread:
        # What a library's class takes and does not read, as targets that a head of its would.
        source = getattr(sys.modules.get(type(patient.model).__module__), "__file__", None) or ""
        yield Fault(
            severity=Severity.INFO if "site-packages" in source else Severity.WARNING,
            where=uses.unread,
            message=f"the output is the same bit for bit with {', '.join(uses.unread)} in another "
            "order and with other numbers: nothing that is computed reads it",
        )


@rule("reads-ahead", a_law("uses"))
def reads_ahead(patient: Patient) -> Iterator[Fault]:
    """Outputs that know the tokens after them, though those are what they are to predict."""
    uses = patient.tried.uses
    told = any(
        one.measured.reads_later or (one.measured.attention and one.measured.attention.sees_later)
        for one in patient.sublayers()
    )
    # Where one of a sequence's tokens is known to an output that comes first, another may know it.
    answers = [] if uses is None or told or uses.later else [*uses.answers]
    if answers:
        yield Fault(
            where="",
            message=(
                f"{len(answers)} of the outputs over the tokens' places change with the very token "
                f"that the loss asks each for, {listed([str(one) for one in answers])} later: it "
                "is told what it has to predict"
            ),
            fix="give a head that reads the next token's embedding the target after that token, "
            "two places later and not one",
        )
    # What is seen in a sub-layer is told with its name.
    if uses is None or not uses.later or told:
        return
    message = (
        "other tokens in the second half of a sequence change the outputs of the first by "
        f"{_of(uses.later)}, "
    )
    if patient.observed.predicts_next:
        message += (
            "and the loss's targets are the inputs one place later: each output can know what it "
            "has to predict"
        )
    else:
        message += (
            "though every attention hides later tokens: something beside attention mixes them"
        )
    yield Fault(
        severity=Severity.ERROR if patient.observed.predicts_next else Severity.WARNING,
        where="",
        message=message,
    )


@rule("order-unread", a_law("uses"))
def order_unread(patient: Patient) -> Iterator[Fault]:
    """Outputs that are the same whatever the order of the tokens, of a model that has positions."""
    uses = patient.tried.uses
    if uses is not None and uses.order == 0 and uses.has_positions:
        yield Fault(
            where="",
            message=(
                "two tokens that change places change nothing at all others, though the model has "
                "positions: it reads a set of tokens, and no sequence"
            ),
        )


@rule("rows-mixed", a_law("uses"))
def rows_mixed(patient: Patient) -> Iterator[Fault]:
    """Outputs of one sequence that change with another one of the batch."""
    uses = patient.tried.uses
    told = any(0 in one.measured.mixes for one in patient.sublayers())
    if uses is not None and uses.rows and not told:
        yield Fault(
            where="",
            message=(
                "other numbers in one row of the batch change the outputs of others by "
                f"{_of(uses.rows)}, in evaluation mode"
            ),
        )


@rule("padding-read", a_law("uses"))
def padding_read(patient: Patient) -> Iterator[Fault]:
    """Outputs of real tokens that change with what stands at padding."""
    uses = patient.tried.uses
    if uses is None or not uses.padding:
        return
    told = [
        one
        for one in patient.sublayers()
        if one.measured.attention is not None and (one.measured.attention.on_padding or 0) > 1e-3
    ]
    by_row = uses.padding_is_asked_by == "row"
    what = (
        "the embedding's row for padding" if by_row else "what stands where the mask says padding"
    )
    yield Fault(
        severity=Severity.INFO if told else Severity.WARNING,
        where="",
        message=(
            f"another number in {what} changes the outputs at the tokens by {_of(uses.padding)}: "
            "padding is looked at, or counted in a mean, and the same sequence in a longer batch "
            "gives another output"
        ),
    )
