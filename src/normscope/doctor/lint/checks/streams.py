"""Several residual streams: a mixing that is no doubly stochastic one, and branches that reach them halved."""

from collections.abc import Iterator

from ....report.doctor.contents import Finding, Severity
from ..gradient_reach import names
from ..rules import Patient, Rule


def mixing_one_sided(patient: Patient) -> Iterator[Finding]:
    """Mixings whose rows or columns all sum to 1, as a softmax or half a round leaves them, but not both."""
    off_by_place = [
        (connected.one_side_alone, place)
        for place in patient.sublayers()
        if (connected := place[1].connected) is not None and connected.one_side_alone is not None
    ]
    if off_by_place:
        off, places = max(off for off, _ in off_by_place), [place for _, place in off_by_place]
        yield Finding(
            id="mixing-not-doubly-stochastic",
            severity=Severity.WARNING,
            where=names(places),
            message=f"streams are mixed by matrices of which rows or columns sum to 1, but not both: the others are "
            f"off by up to {off:.2g} in {len(places)} sub-layers",
            fix="divide rows and columns by their sums in turn, 20 rounds or more (Sinkhorn and Knopp); where logits "
            "are wide, more rounds, or start them smaller",
        )


def branches_halved(patient: Patient) -> Iterator[Finding]:
    """Branches that all enter the streams at half their size, because sigmoids of about 0 are not doubled."""
    places = [
        place
        for place in patient.sublayers()
        if (connected := place[1].connected) is not None
        and connected.expand.made == "token"
        and connected.connect is not None
        and abs(connected.connect.total - 1) < 1e-2
        and abs(connected.expand.total - 0.5) < 0.05
    ]
    if places and len(places) == len(list(patient.sublayers())):
        yield Finding(
            id="branches-halved",
            severity=Severity.WARNING,
            where=names(places),
            message=f"the output of every sub-layer is multiplied by about 0.5 where it is added to the streams: "
            f"{len(places)} of them. Sigmoids of small numbers give 0.5, and mHC doubles them",
            fix="multiply the sigmoids of what is added to the streams by 2",
        )


PLACE = 47
RULES = (
    Rule(
        id="mixing-not-doubly-stochastic",
        severity=Severity.WARNING,
        title="Streams mixed by a matrix that is not doubly stochastic",
        explanation="Only where rows and columns both sum to 1 does mixing keep the streams' mean; a softmax alone, or "
        "too few rounds, makes one stream grow at the cost of others, more so with depth.",
        reference="Xie et al. 2025, arXiv:2512.24880, section 4",
        check=mixing_one_sided,
    ),
    Rule(
        id="branches-halved",
        severity=Severity.WARNING,
        title="Branches that reach all streams at half their size",
        explanation="With weights of 0, mHC is Pre-LN only where the sigmoid of what is added is doubled; without "
        "that, every branch counts half.",
        reference="Xie et al. 2025, arXiv:2512.24880, section 4",
        check=branches_halved,
    ),
)
