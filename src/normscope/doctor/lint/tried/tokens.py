"""Tokens that are one to the model, walls in a sequence, and hidden tokens that are asked for from
one side.
"""

from collections.abc import Iterator

from ....report.words import counted
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
            f"of {uses.tokens} tokens in the batch {uses.told_apart} are told apart: "
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
