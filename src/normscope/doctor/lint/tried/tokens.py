"""Tokens that are one to the model or that it does not read, walls in a sequence and none between
texts, and what is asked for where it is shown, or hidden from one side.
"""

from collections.abc import Iterator

from ....placement.printing import ranges
from ....report.words import counted
from ...result import Severity
from ..patient import Patient, a_law
from ..rule import Fault, rule

_SHOWN = 4


@rule("tokens-alike", a_law("tokens"))
def tokens_alike(patient: Patient) -> Iterator[Fault]:
    """Different tokens that are looked up in one row, and change nothing for each other."""
    uses = patient.tried.tokens
    if uses is None or not uses.alike:
        return
    shown = ", ".join(map(str, uses.alike[:_SHOWN]))
    rest = ", …" if len(uses.alike) > _SHOWN else ""
    yield Fault(
        where="",
        message=(
            f"of {uses.tokens} tokens in the batch {uses.told_apart} are distinguished: "
            f"{counted(len(uses.alike), 'token')} are looked up in one row ({shown}{rest}), and "
            "the output is the same bit for bit with one of them for all others"
        ),
    )


@rule("sequence-cut", a_law("tokens"))
def sequence_cut(patient: Patient) -> Iterator[Fault]:
    """A place behind which outputs know of no token before it."""
    uses = patient.tried.tokens
    if uses is not None and uses.wall:
        yield Fault(
            where="",
            message=(
                f"outputs from place {uses.wall} on know nothing of the tokens before it, bit for "
                f"bit, in no block: place {uses.wall - 1} knows them, and the sequence is cut "
                "behind it"
            ),
        )


@rule("hidden-from-one-side", a_law("tokens"))
def hidden_from_one_side(patient: Patient) -> Iterator[Fault]:
    """Hidden tokens that are asked for in a model that sees no later token."""
    uses = patient.tried.tokens
    if uses is not None and uses.hidden:
        yield Fault(
            where="",
            message=(
                f"the loss asks for the tokens at {counted(uses.hidden, 'place')} where one and "
                "the same token hides them, and every output is the same bit for bit whatever "
                "stands later: what is hidden is guessed from the tokens before it alone"
            ),
        )


@rule("tokens-unread", a_law("tokens"))
def tokens_unread(patient: Patient) -> Iterator[Fault]:
    """Places whose tokens no output knows."""
    uses = patient.tried.tokens
    if uses is not None and uses.unread:
        yield Fault(
            where="",
            message=(
                f"no output depends on the tokens at places {ranges([*uses.unread])} (from 0), in "
                "any sequence, though the same tokens are read at others: something else is put "
                "in their place, or they are cut off"
            ),
        )


@rule("documents-mixed", a_law("tokens"))
def documents_mixed(patient: Patient) -> Iterator[Fault]:
    """Texts of one row whose places begin anew, and that see each other."""
    uses = patient.tried.tokens
    if uses is not None and uses.documents:
        yield Fault(
            where="",
            message=(
                f"{uses.documents} counts places and starts again within the rows, as where "
                "several texts are packed into one, and outputs behind that change with the tokens "
                "before it: each text is read as the continuation of another"
            ),
        )


@rule("answers-shown", a_law("tokens"))
def answers_shown(patient: Patient) -> Iterator[Fault]:
    """Losses that ask for tokens where these stand."""
    uses = patient.tried.tokens
    if uses is None:
        return
    if uses.fed:
        yield Fault(
            severity=Severity.ERROR,
            where="",
            message=(
                f"{uses.fed} holds at each place the very token that the loss asks for there, the "
                "output there knows it and no output before does: the decoder is fed its targets"
            ),
            fix="shift what the decoder is given by one: a start token, then the targets without "
            "the last",
        )
    if uses.shown:
        share = f"{100 * uses.shown:.2g} %"
        yield Fault(
            severity=Severity.WARNING,
            where="",
            message=(
                f"one token hides what the loss asks for at some places, and {share} of the "
                "targets stand in the input as they are, at their own place: for these the same "
                "token is copied"
            ),
            fix="count hidden places alone: give all others the ignored label, -100",
        )
