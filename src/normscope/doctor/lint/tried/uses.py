"""Inputs that the output does not know, or knows where it must not."""

import sys
from collections.abc import Iterator

from ...laws.context import ContextUses
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


@rule("outputs-alike", a_law("uses"))
def outputs_alike(patient: Patient) -> Iterator[Fault]:
    """Outputs that are one at all places of a row."""
    uses = patient.tried.uses
    if uses is not None and uses.outputs_alike:
        yield Fault(
            where="",
            message=(
                f"the outputs at all {uses.outputs_alike} places of a row are the same, whatever "
                "is given, and other rows have others: nothing tells these places apart"
            ),
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
    context = _context(patient)
    if context is None or context.shifted is None or (uses and uses.order is not None):
        return
    # What is turned or biased by distance lets attention know an order without any table.
    if context.shifted == 0 and context.meant.only_by_table:
        yield Fault(
            where="",
            message=(
                "a sequence of one token again and again gives the same output at every place, "
                "though the model has a table of positions: no output knows where its token stands"
            ),
            fix="look the table up at 0, 1, 2, …, and add what it gives to the tokens' embeddings",
        )


_PLACED = 0.001
"""The share of an output's size by which two places differ that should agree on one token."""


@rule("places-read", a_law("uses"))
def places_read(patient: Patient) -> Iterator[Fault]:
    """Outputs of tokens that are all alike that differ from place to place, of a model that knows
    by how far tokens are apart and nothing else of places.
    """
    context = _context(patient)
    told = any(
        one.measured.attention is not None and one.measured.attention.places_in_values
        for one in patient.sublayers()
    )
    if context is None or told or not context.meant.relative:
        return
    if (context.shifted or 0.0) > _PLACED:
        yield Fault(
            where="",
            message=(
                "a sequence of one token again and again gives other outputs at its end than in "
                f"its middle, by {_of(context.shifted or 0.0)}: attention knows by how far tokens "
                "are apart alone, and a mean of values that are all alike is one everywhere"
            ),
        )


@rule("context-unread", a_law("uses"))
def context_unread(patient: Patient) -> Iterator[Fault]:
    """Attention that looks at other tokens, of which the output knows nothing; and tokens that are
    known farther away than attention looks.
    """
    context = _context(patient)
    if context is None:
        return
    if context.context_unread:
        yield Fault(
            where="",
            message=(
                "another token changes no output but its own, to the last bits, though every "
                "attention looks at other tokens: what is weighted is not what the weights are of"
            ),
        )
    if context.farther:
        yield Fault(
            severity=Severity.INFO,
            where="",
            message=(
                f"a token changes outputs {context.farther} places away, and the attention of all "
                f"blocks together carries it {context.meant.farthest}: something beside attention "
                "mixes tokens"
            ),
            fix="nothing, where it is meant; else look for a mean, a norm or a convolution along "
            "the sequence outside of attention",
        )


def _context(patient: Patient) -> ContextUses | None:
    uses = patient.tried.uses
    return None if uses is None else uses.context


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
