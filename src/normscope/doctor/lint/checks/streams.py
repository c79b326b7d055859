"""Several residual streams: what they are mixed with, and whether branches reach them, alike or unlike."""

from collections.abc import Iterator

from ...identify.lanes import NOT_BEYOND
from ...result import Finding, Severity
from ...trace.lanes import SUMS_TO_ONE
from ..gradient_reach import Place, names
from ..rules import Patient, Rule
from ..vectors import at_initialisation, listed


def mixing_one_sided(patient: Patient) -> Iterator[Finding]:
    """Mixings whose rows or columns all sum to 1, as a softmax or half a round leaves them, but not both."""
    off_by_place = [
        (connection.one_side_alone or 0, place)
        for place in patient.sublayers()
        if (connection := place[1].connection) is not None and (connection.one_side_alone or 0) > NOT_BEYOND
    ]
    if off_by_place:
        off, places = max(off for off, _ in off_by_place), [place for _, place in off_by_place]
        yield Finding(
            id="mixing-not-doubly-stochastic",
            severity=Severity.WARNING,
            where=names(places),
            message=f"streams are mixed by matrices of which rows or columns sum to 1, but not both: the others are "
            f"off by up to {off:.2g} in {len(places)} sub-layers",
            fix="divide rows and columns by their sums in turn, 20 rounds or more (Sinkhorn and Knopp)",
        )


def branches_halved(patient: Patient) -> Iterator[Finding]:
    """Branches that all enter the streams at half their size, because sigmoids of about 0 are not doubled."""
    places = [
        place
        for place in patient.sublayers()
        if (connection := place[1].connection) is not None
        and connection.write.made == "token"
        and connection.mixing is not None
        and _is_near(connection.mixing.total, 1, 1e-2)
        and _is_near(connection.write.total, 0.5, 0.05)
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


def _is_near(value: float | None, wanted: float, within: float) -> bool:
    return value is not None and abs(value - wanted) < within


def copies_for_ever(patient: Patient) -> Iterator[Finding]:
    """Streams that start as copies of each other and get the same at every sub-layer, whatever is trained."""
    for stack in patient.stacks:
        if stack.streams_stay_copies:
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
        left = [set(s.connection.unwritten) for s in stack.sublayers if s.connection is not None]
        unwritten = sorted(set.intersection(*left)) if left else []
        if unwritten:
            mixed = any(s.connection is not None and s.connection.mixing is not None for s in stack.sublayers)
            yield Finding(
                id="stream-not-written",
                severity=Severity.WARNING,
                where=listed(sublayer.name for sublayer in stack.sublayers),
                message=f"no sub-layer's output is added to {len(unwritten)} of {stack.streams} streams (number "
                f"{', '.join(map(str, unwritten))}): it is multiplied by exactly 0 there. "
                + ("They change by the mixing alone" if mixed else "They hold to the end what they started with"),
                fix="add the output to every stream, each with a weight of its own; look at the shape of these weights",
            )


WIDE = 0.5
"""Of the spread of σ's about 1/2: that of logits with a standard deviation of 1.3."""


def weights_drawn_wide(patient: Patient) -> Iterator[Finding]:
    """Weights of streams that differ so much from token to token and stream to stream that no stream starts alike."""
    by_token = [place for place in patient.sublayers() if place[0].streams_start_equal and _is_by_token(place)]
    spreads = [place[1].connection.write.spread for place in by_token if place[1].connection is not None]
    wide = [spread for spread in spreads if spread > WIDE]
    off = [
        (connection.from_doubly_stochastic or 0, connection.tokens_off or 0)
        for place in by_token
        if (connection := place[1].connection) is not None
        and SUMS_TO_ONE < (connection.one_side_alone or 0) <= NOT_BEYOND
    ]
    said = []
    if at_initialisation(patient) and 2 * len(wide) > len(by_token):
        said.append(
            f"what is added to streams is multiplied by weights that scatter by {max(wide):.2g} of their mean over "
            "tokens and streams, so that streams which start as copies are unlike after the first sub-layers"
        )
    if off:
        said.append(
            f"after its rounds the mixing's rows or columns sum to 1 up to {max(most for most, _ in off):.2g}, and at "
            f"{100 * max(share for _, share in off):.0f} % of the tokens of a sub-layer not within {SUMS_TO_ONE:g}"
        )
    if said:
        yield Finding(
            id="stream-weights-drawn-wide",
            severity=Severity.INFO,
            where=names(by_token),
            message="; ".join(said),
            fix="nothing, where this is meant, as in DeepSeek-V4; else start the logits smaller, by a factor of 0.01 "
            "as HY-V4 does, or give the mixing more rounds",
        )


def _is_by_token(place: Place) -> bool:
    connection = place[1].connection
    return connection is not None and connection.write.made == "token" and not connection.unwritten


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
    Rule(
        id="stream-weights-drawn-wide",
        severity=Severity.INFO,
        title="Weights of streams that are drawn wide",
        explanation="Where the logits of mHC's weights start wide, mHC is no Pre-LN at initialisation, streams differ "
        "from the first sub-layer on, and 20 rounds leave sums that are not 1.",
        reference="Xie et al. 2025, arXiv:2512.24880, section 4; transformers 5.23, deepseek_v4: logits have a "
        "standard deviation of 0.02 √(4d), 2.6 at a width of 4,096, and sums are off by up to 0.03",
        check=weights_drawn_wide,
    ),
)
