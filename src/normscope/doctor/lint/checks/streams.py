"""Several residual streams: mixed by a matrix that is not doubly stochastic, never told apart, or not written to."""

from collections.abc import Iterator

from ....report.doctor.contents import Finding, Severity
from ..gradient_reach import names
from ..rules import Patient, Rule
from ..vectors import listed


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


def copies_for_ever(patient: Patient) -> Iterator[Finding]:
    """Streams that start as copies of each other and get the same at every sub-layer, whatever is trained."""
    for stack, seen in zip(patient.stacks, patient.observed.stacks, strict=True):
        if seen.streams_stay_copies:
            yield Finding(
                id="streams-stay-copies",
                severity=Severity.ERROR,
                where=listed(sublayer.name for sublayer in stack.sublayers),
                message=f"{stack.streams} streams start as copies of each other and are copies after every one of "
                f"{len(stack.sublayers)} sub-layers, also when noise is put on all trained parameters: they do the "
                "work of one",
                fix="multiply the output of a sub-layer by a trained number of its own for each stream (mHC's post, "
                "one for each token and stream) where it is added",
            )


def streams_left_out(patient: Patient) -> Iterator[Finding]:
    """Streams that no sub-layer's output is added to."""
    for stack in patient.stacks:
        left = [set(s.connected.unwritten) for s in stack.sublayers if s.connected is not None]
        unwritten = sorted(set.intersection(*left)) if left else []
        if unwritten:
            mixed = any(s.connected is not None and s.connected.connect is not None for s in stack.sublayers)
            yield Finding(
                id="stream-not-written",
                severity=Severity.WARNING,
                where=listed(sublayer.name for sublayer in stack.sublayers),
                message=f"no sub-layer's output is added to {len(unwritten)} of {stack.streams} streams (number "
                f"{', '.join(map(str, unwritten))}): it is multiplied by exactly 0 there. "
                + ("They change by the mixing alone" if mixed else "They hold to the end what they started with"),
                fix="add the output to every stream, each with a weight of its own; look at the shape of these weights",
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
    Rule(
        id="streams-stay-copies",
        severity=Severity.ERROR,
        title="Streams that stay copies of each other",
        explanation="Where every stream gets the same from every sub-layer, and mixing keeps what is equal, several "
        "streams cost their memory and time and compute what one does.",
        reference="Zhu et al. 2024, arXiv:2409.19606, section 2, where streams start as copies and every one has "
        "weights of its own",
        check=copies_for_ever,
    ),
    Rule(
        id="stream-not-written",
        severity=Severity.WARNING,
        title="Streams that no sub-layer writes to",
        explanation="Hyper-connections add every branch to every stream, each with a weight of its own; a mask or a "
        "weight of the wrong shape leaves some out.",
        reference="Zhu et al. 2024, arXiv:2409.19606, section 2, and Xie et al. 2025, arXiv:2512.24880, section 4",
        check=streams_left_out,
    ),
)
