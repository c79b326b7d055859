"""Weights that a pass computes with and that no loss teaches, there or at all."""

from collections.abc import Iterator

from ...result import Severity
from ..patient import Patient
from ..rule import Fault, rule


@rule("detached-weights")
def detached_weights(patient: Patient) -> Iterator[Fault]:
    """Trained matrices that are detached where data is multiplied with them."""
    found = patient.observed.detached_products
    if found:
        yield Fault(
            where=found,
            message=(
                f"{len(found)} trained matrices are read without their gradient where data is "
                "multiplied with them, as a tied head that is detached: what this product asks of "
                "them is lost"
            ),
        )


@rule("dropped-products")
def dropped_products(patient: Patient) -> Iterator[Fault]:
    """Trained matrices whose product with data is computed, and makes nothing of the output."""
    found = patient.observed.dropped_products
    inside = [one for one in found if any(part.isdigit() for part in one.split("."))]
    blocks = {next(int(part) for part in one.split(".") if part.isdigit()) for one in inside}
    # The last block of two streams may end in what nobody reads.
    at_end = len(blocks) < 2
    if inside:
        yield Fault(
            severity=Severity.INFO if at_end else Severity.WARNING,
            where=inside,
            message=(
                f"{len(inside)} trained matrices are multiplied with data, and nothing of the "
                "output is made from the product: they get no gradient"
            ),
        )
