"""Weights that a pass computes with and that no loss teaches, there or at all."""

from collections.abc import Iterator

from ...result import Severity
from ..patient import Patient
from ..rule import Fault, rule


@rule("detached-weights")
def detached_weights(patient: Patient) -> Iterator[Fault]:
    """Trained matrices that are detached where data is multiplied with them."""
    found = patient.observed.partly.detached_products
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
    found = patient.observed.partly.dropped_products
    if not found:
        return
    read = [
        name
        for one in patient.sublayers()
        for name in one.measured.matrices
        if name not in found and one.measured.reaches_output
    ]
    beside = {name.rpartition(".")[0].rpartition(".")[0] for name in read}
    # What waits for more tokens, as what compresses old ones, waits as a whole.
    alone = [name for name in found if name.rpartition(".")[0].rpartition(".")[0] in beside]
    blocks = {part for name in alone for part in name.split(".") if part.isdigit()}
    if alone:
        yield Fault(
            # The last block of two streams may end in what nobody reads.
            severity=Severity.WARNING if len(blocks) > 1 else Severity.INFO,
            where=alone,
            message=(
                f"{len(alone)} trained matrices are multiplied with data, and nothing of the "
                "output is made from the product, while it is of those beside them: they get no "
                "gradient"
            ),
        )
