"""Places that share a position, that are read in another's stead, that are hidden, and sub-layers
that answer at other places than they were asked.
"""

from collections.abc import Iterator

from ...record import Stack, Sublayer
from ..patient import Patient
from ..rule import Fault, rule, stack_rule

_SHARED = 3
"""Places that have another's row by no filling."""


@rule("positions-alike")
def positions_alike(patient: Patient) -> Iterator[Fault]:
    """Positions that are added to the stream, of which several places get the same."""
    seen = patient.observed
    if seen.positions_along is not None and seen.places_shared >= _SHARED:
        yield Fault(
            where="",
            message=(
                "what is added to the stream for every input alike differs from place to place, "
                f"but {seen.places_shared} places get what an earlier one gets, number for number"
            ),
        )


_MOST_FAST = 0.25
"""The share of a sinusoid's pairs that may turn fast; only the first pair is to."""


@rule("positions-too-fast")
def positions_too_fast(patient: Patient) -> Iterator[Fault]:
    """Sinusoids most of which turn by a radian and more from one place to the next."""
    share = patient.observed.fast_turns
    if share > _MOST_FAST:
        yield Fault(
            where="",
            message=(
                f"of the pairs of sine and cosine that are added to the stream {100 * share:.2g} % "
                "turn by more than 1.2 radians from one place to the next: neighbours look no more "
                "alike than places far apart, and no pair tells the order of distant ones"
            ),
        )


@rule("mirrored-places")
def mirrored_places(patient: Patient) -> Iterator[Fault]:
    """Sub-layers of which a token that stands further on changes outputs that stand earlier."""
    inside = [*patient.sublayers()]
    found = [one for one in inside if one.measured.mirrored]
    if found:
        yield Fault(
            where=found,
            message=(
                f"in {len(found)} of {len(inside)} sub-layers the outputs that know of a token "
                "begin one place earlier with each place that it stands further on: some of what "
                "they add stands in the reverse order of the tokens"
            ),
        )


@stack_rule("memory-hidden")
def memory_hidden(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Cross-attention that hides the later part of what an encoder read from both sides."""
    if stack.memory is None:
        return
    known = [one.measured.attention for one in patient.stacks[stack.memory].sublayers]
    reads_both_ways = any(one is not None and (one.sees_later or 0) > 0 for one in known)
    crossing = [one for one in stack.sublayers if one.kind == "cross_attention"]
    found = [
        one
        for one in crossing
        if one.measured.attention is not None and one.measured.attention.hides_as_later
    ]
    if found and reads_both_ways:
        yield Fault(
            where=found,
            message=(
                f"in {len(found)} of {len(crossing)} cross-attentions a token at place n looks at "
                "the first n places of the memory alone, though the encoder that made it looks "
                "both ways: the mask of the decoder's own tokens hides the source"
            ),
        )


@rule("token-not-read")
def token_not_read(patient: Patient) -> Iterator[Fault]:
    """A trained token that is put beside the others for the output to be read at, and is not."""
    seen = patient.observed.read_places
    if seen is None or len(seen.trained) != 1 or not {*seen.trained}.isdisjoint(seen.read):
        return
    attentions = [one.measured.attention for one in patient.sublayers()]
    if all(one is None or not one.sees_later for one in attentions):
        # Where later tokens are hidden, the last place is the one that knows all.
        return
    ((place, name),) = seen.trained.items()
    places = " and ".join(str(one) for one in seen.read)
    yield Fault(
        where=name,
        message=(
            f"{name} is put at place {place} of {seen.tokens}, a token of its own, and what is "
            f"read at the end is place {places}: a piece of the input speaks for all of it"
        ),
    )


@rule("dropped-logits")
def dropped_logits(patient: Patient) -> Iterator[Fault]:
    """A dropout of what a softmax is taken of."""
    found = patient.observed.dropped_logits
    if found:
        yield Fault(
            where=found,
            message=(
                f"a softmax is taken of what a dropout leaves, {len(found)} times: a logit that is "
                "dropped is 0, which is no small weight but a middling one, and the others grow"
            ),
        )


@rule("own-place-missed")
def own_place_missed(patient: Patient) -> Iterator[Fault]:
    """Sub-layers in which a token changes outputs at other places and not at its own.

    What mixes tokens by weights that were not read may look where it pleases, as deformable
    attention does.
    """
    inside = [*patient.sublayers()]
    found = []
    for one in inside:
        mixes = one.kind == "convolution" or "attention" in one.kind
        unread = mixes and one.measured.attention is None
        if one.measured.misses_itself and _sees_itself(one) and not unread:
            found.append(one)
    if found:
        yield Fault(
            where=found,
            message=(
                f"in {len(found)} of {len(inside)} sub-layers a token changes what is added at "
                "other places and not at its own: what it makes is added to another token's stream"
            ),
        )


def _sees_itself(one: Sublayer) -> bool:
    """Tells whether no mask hides a token from itself, on which a rule on masks reports."""
    seen = one.measured.attention
    return seen is None or seen.sees_itself is None or seen.sees_itself > 0


@rule("large-dropout")
def large_dropout(patient: Patient) -> Iterator[Fault]:
    """Dropouts that leave next to nothing."""
    found = patient.observed.large_dropouts
    if found:
        share = max(found.values())
        yield Fault(
            where=found,
            message=(
                f"a dropout of {share:g} stands at {len(found)} places: of what goes through it "
                f"training sees {100 * (1 - share):.2g} %"
            ),
        )


@rule("batch-norm-of-tokens")
def batch_norm_of_tokens(patient: Patient) -> Iterator[Fault]:
    """Batch norms whose channels are tokens."""
    found = patient.observed.token_channels
    if found:
        yield Fault(
            where=found,
            message=(
                f"{len(found)} batch norms are given (batch, tokens, features) and take the second "
                "dimension for channels: each token has statistics, a gain and a shift of its "
                "place, over features that matrices then read as unlike"
            ),
        )
