"""Logits that no training can bring far enough apart."""

import math
from collections.abc import Iterator

from ..patient import Patient, a_law
from ..rule import Fault, rule

_FLOOR = 0.1
"""The share of ln(classes) that no training's loss goes below."""


@rule("capped-logits", a_law("reach"))
def capped_logits(patient: Patient) -> Iterator[Fault]:
    """Logits that cannot lie far enough apart for one class to be likely."""
    reach = patient.tried.reach
    if reach is None or reach.classes < 2:
        return
    chance = math.log(reach.classes)
    if reach.floor_nats > _FLOOR * chance:
        wanted = 2 * math.ceil(chance)
        yield Fault(
            where=[one.name for one in patient.observed.output_matrices],
            message=(
                f"however large the output matrix is, two logits of a token lie at most "
                f"{reach.spread:.3g} apart: of {reach.classes} classes none can be likelier than "
                f"{math.exp(-reach.floor_nats):.2g}, and no training brings the loss below "
                f"{reach.floor_nats:.2f} nats a token"
            ),
            fix=f"take the curve (or the norm) off the logits, or let them reach ± {wanted} and "
            "more: 30 is usual",
        )
