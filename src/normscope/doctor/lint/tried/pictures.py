"""Pictures that are cut or put together at other places than they should be, and rows that training
loses.
"""

from collections.abc import Iterator

from ..patient import Patient, a_law
from ..rule import Fault, rule


@rule("pieces-scattered", a_law("pictures"))
def pieces_scattered(patient: Patient) -> Iterator[Fault]:
    """Pieces of a picture whose pixels do not lie beside each other."""
    uses = patient.tried.pictures
    if uses is not None and 2 * uses.scattered > uses.pieces:
        yield Fault(
            where="",
            message=(
                f"of {uses.pieces} pieces that the first matrix reads of a picture "
                f"{uses.scattered} are no rectangle of pixels in all colours: rows, or colours, "
                "of several places stand in one"
            ),
        )


_TIMES = 10.0


@rule("painted-elsewhere", a_law("pictures"))
def painted_elsewhere(patient: Patient) -> Iterator[Fault]:
    """Outputs that change at another part of the picture than the one that was changed."""
    uses = patient.tried.pictures
    if uses is not None and uses.elsewhere > _TIMES:
        yield Fault(
            where="",
            message=(
                "other pixels in one corner of the picture change the output "
                f"{uses.elsewhere:.3g} times more at another place of it than there: pieces are "
                "put together in another order than they were cut in"
            ),
        )


@rule("rows-lost-in-training", a_law("rows"))
def rows_lost_in_training(patient: Patient) -> Iterator[Fault]:
    """Outputs that training's chance makes independent of all that the model was given."""
    rows = patient.tried.rows
    if rows is not None and rows.lost:
        yield Fault(
            where=rows.by,
            message=(
                f"of {rows.drawn} rows in training mode {rows.lost} come out with nothing of what "
                "was given: chance drops the whole sum, skip and branch, and the sequence is lost "
                "there"
            ),
        )
