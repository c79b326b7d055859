"""Sub-layers that look where they must not: at later tokens, at padding, or at other sequences of a
batch.
"""

from collections.abc import Iterator, Sequence

from ....report.words import kind_name
from ...record import Stack, Sublayer
from ...result import Severity
from ..patient import Patient
from ..rule import Fault, stack_rule
from ..structure import by_kind, in_blocks, number_of
from .attention import AttentionSite, attending, counted


@stack_rule("attention-mask")
def attention_mask(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Sub-layers that see later tokens or padding where the other blocks, the loss or the batch say
    they must not.
    """
    yield from _padding(stack)
    yield from _around_the_mask(patient, stack)
    ordered = [site for site in attending(stack) if site[1].sees_later is not None]
    if ordered:
        yield from _blind_to_itself(ordered)
        yield from _itself_alone(ordered)
        yield from _at_later(patient, stack, ordered)


def _blind_to_itself(ordered: Sequence[AttentionSite]) -> Iterator[Fault]:
    """Yields attention whose tokens look at earlier ones and not at themselves."""
    # The first token, which then has nothing to look at, may look everywhere.
    blind = [one for one in ordered if one[1].sees_itself == 0 and one[1].sees_earlier]
    blind = [one for one in blind if (one[1].sees_later or 0.0) < _FIRST_ALONE]
    if blind:
        yield Fault(
            severity=Severity.WARNING,
            where=[site for site, _ in blind],
            message=(
                f"{counted(blind, ordered)} tokens look at earlier ones and not at themselves: the "
                "causal mask hides the diagonal too, and the first token sees nothing"
            ),
            fix="hide where key > query, triu(1) of a mask and not triu(0)",
        )


def _itself_alone(ordered: Sequence[AttentionSite]) -> Iterator[Fault]:
    """Yields attention whose tokens look at themselves and at no other."""
    alone = [
        one
        for one in ordered
        if one[1].sees_itself and one[1].sees_earlier == 0 and one[1].sees_later == 0
    ]
    if alone:
        yield Fault(
            severity=Severity.WARNING,
            where=[site for site, _ in alone],
            message=(
                f"{counted(alone, ordered)} tokens look at themselves alone: the softmax is 1 "
                "whatever queries and keys are, which get no gradient"
            ),
            fix="let tokens look at earlier ones: a window counts the token itself, so that one of "
            "1 shows nothing else",
        )


def _at_later(patient: Patient, stack: Stack, ordered: Sequence[AttentionSite]) -> Iterator[Fault]:
    """Yields attention that looks at later tokens alone, that does in some blocks and not in the
    others, or that does where the outputs must not know them.
    """
    says = "" if _is_read(patient, stack) else _says_next(patient, stack)
    worst = Severity.ERROR if patient.observed.predicts_next and says else Severity.WARNING
    # The last token, which then has nothing to look at, may see all alike.
    ahead = [site for site in ordered if (site[1].sees_later or 0.0) > 0.5]
    backward = [site for site in ahead if (site[1].sees_earlier or 0.0) < 0.2]
    leaking = [site for site in ordered if site[1].sees_later and site not in backward]
    masked = [site for site in ordered if not site[1].sees_later]
    if backward:
        yield Fault(
            severity=worst,
            where=[site for site, _ in backward],
            message=(
                f"{counted(backward, ordered)} tokens look at later ones and at no earlier one: "
                "the causal mask is inverted"
            ),
            fix="let each token look at itself and at earlier ones: hide where key > query",
        )
    if leaking and len(masked) > len(leaking):
        yield Fault(
            severity=worst,
            where=[site for site, _ in leaking],
            message=(
                f"{counted(leaking, ordered)} {leaking[0][1].sees_later:.0%} of the tokens look at "
                "later ones, which the other blocks hide: what comes next leaks into what is "
                "predicted"
            ),
            fix="give this block the causal mask of the others",
        )
    elif leaking and says and min(site[1].sees_later or 0 for site in leaking) > 0.5:
        yield _without_mask(patient, leaking, ordered, says)
    elif len(masked) == 1 and len(leaking) > 1 and not says:
        yield Fault(
            severity=Severity.INFO,
            where=[site for site, _ in masked],
            message=(
                f"{counted(masked, ordered)} tokens look at no later one, and in the others they do"
            ),
            fix="nothing, where this is meant; else leave out this block's causal mask",
        )


def _without_mask(
    patient: Patient,
    leaking: Sequence[AttentionSite],
    ordered: Sequence[AttentionSite],
    says: str,
) -> Fault:
    """Returns the fault of tokens that look at all others, though `says` says why they must not."""
    # Whoever writes causal=False means it, and has the wrong loss at most.
    meant = _says_both_ways(patient, leaking)
    places = {seen.place_logits for _, seen in leaking}
    placeless = patient.observed.positions_along is None and places == {"none"}
    message = (
        f"{counted(leaking, ordered)} tokens look at later ones, and {says}: each can look at what "
        "it has to predict"
    )
    if placeless:
        message += ", though it cannot tell which one: nothing knows tokens' places"
    return Fault(
        severity=Severity.INFO if meant or placeless else Severity.WARNING,
        where=[site for site, _ in leaking],
        message=message,
        fix="hide later tokens from queries with a causal mask (is_causal=True, or -inf where "
        "key > query); an encoder needs another loss",
    )


def _is_read(patient: Patient, stack: Stack) -> bool:
    """Tells whether another stack reads this one, as an encoder is read: as its memory, or by
    coming before a stack that hides later tokens.
    """
    number = number_of(patient.stacks, stack)
    seen_later = []
    for later in patient.stacks[number + 1 :]:
        seen_later += [seen.sees_later for _, seen in attending(later)]
    return 0.0 in seen_later or any(other.memory == number for other in patient.stacks)


_FIRST_ALONE = 0.2
"""Share of the queries: one of few."""


def _around_the_mask(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Finds sub-layers that depend on later tokens though the masks of attention hide them."""
    ordered = [seen for _, seen in attending(stack) if seen.sees_later is not None]
    # Where padding is hidden too, rows may be hidden whole, and then look everywhere.
    if not ordered or any(seen.sees_later or seen.on_padding is not None for seen in ordered):
        return
    inside = in_blocks(stack)
    for likes in by_kind(stack):
        # Of the attention that was not understood, nothing is known of what its mask hides.
        attends = likes[0].kind == "attention"
        found = [
            one
            for one in likes
            if one.measured.reads_later and (one.measured.attention or not attends)
        ]
        if not found:
            continue
        message = (
            f"{len(found)} of {len(inside)} sub-layers, {kind_name(likes[0].kind)}, make of a "
            "token what depends on later ones, though the masks of attention hide these: what "
            "comes next leaks into what is predicted"
        )
        fix = (
            "let each token read itself and earlier ones: no mean, softmax or norm over the "
            "sequence, and convolutions padded on the left alone"
        )
        if attends:
            message += ". Tokens change places between the stream and its weighted sums"
            fix = "split and merge heads by (B, T, H, D).transpose(1, 2), and not by view alone"
        yield Fault(
            severity=Severity.ERROR if patient.observed.predicts_next else Severity.WARNING,
            where=found,
            message=message,
            fix=fix,
        )


@stack_rule("sequences-mixed")
def sequences_mixed(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Sub-layers that mix the dimension that positions, the loss or the other sub-layers do not
    take for tokens.
    """
    along, inside = patient.observed.positions_along, in_blocks(stack)
    across = [one for one in inside if 0 in one.measured.mixes]
    known = along == 1 or patient.observed.predicts_next
    if across and (known or any(one.measured.mixes == (0, 1) for one in inside)):
        second = ", and positions run along the second" if known else ", and of the second"
        yield Fault(
            where=across,
            message=(
                f"{len(across)} of {len(inside)} sub-layers make of a token what depends on other "
                f"rows of the batch's first dimension{second}"
            ),
            fix="hand over (batch, tokens, width) with batch_first=True, or transpose before and "
            "after",
        )
    mixing = [one for one in inside if one.measured.mixes == (1,)]
    if along == 0 and mixing and not across:
        yield Fault(
            where=mixing,
            message="what is added to the stream for every input alike differs along its first "
            f"dimension, and {len(mixing)} sub-layers mix the second: sequences are numbered, "
            "and tokens have no place",
            fix="cut positions by the number of tokens, x + positions[:, : x.size(1)]",
        )


def _says_next(patient: Patient, stack: Stack) -> str:
    """Returns the reason why the outputs of a stack must not know later tokens, as a clause; ""
    where nothing shows it.
    """
    if not any(sublayer.measured.reaches_output for sublayer in stack.sublayers):
        return ""
    if patient.observed.predicts_next:
        return "the loss's targets are the inputs one place later"
    name = type(patient.model).__name__
    config = getattr(patient.model, "config", None)
    crosses = any(sublayer.kind == "cross_attention" for sublayer in stack.sublayers)
    # A prefix that is read both ways has a loss on other tokens, whatever the class is called.
    if patient.observed.target_places == 0:
        return ""
    if name.endswith("ForCausalLM") or (
        name.endswith("ForConditionalGeneration")
        and crosses
        and getattr(config, "is_encoder_decoder", False)
    ):
        return f"{name} predicts the next token"
    return ""


def _says_both_ways(patient: Patient, sites: Sequence[tuple[Sublayer, object]]) -> bool:
    """Tells whether the module of each attention has a flag, causal or is_causal, that is False."""
    modules = [patient.model.get_submodule(sublayer.name) for sublayer, _ in sites]
    return all(
        False in (getattr(one, "causal", None), getattr(one, "is_causal", None)) for one in modules
    )


_ON_PADDING = 1e-3


def _padding(stack: Stack) -> Iterator[Fault]:
    masked = [site for site in attending(stack) if site[1].on_padding is not None]
    found = [site for site in masked if (site[1].on_padding or 0.0) > _ON_PADDING]
    if found:
        worst = max(seen.on_padding or 0.0 for _, seen in found)
        message = (
            f"{counted(found, masked)} tokens give up to {worst:.2g} of their weight to padding, "
            "which the batch's mask marks"
        )
        how = "hand the batch's mask on to it"
        inverted = worst > 0.99
        if inverted:
            message += ", and none to tokens: the mask is inverted"
            how = "1 and True mean the opposite in this attention"
        yield Fault(
            severity=Severity.WARNING,
            where=[site for site, _ in found],
            message=message,
            fix=f"hide padded keys from attention: {how}",
        )


_PLACES: dict[str, tuple[str, str]] = {
    "queries": (
        "places change the queries alone: between two tokens all that they do is the same for "
        "every key, which a softmax takes away",
        "rotate queries and keys alike",
    ),
    "keys": (
        "places change the keys alone: whatever token looks, the same places are favoured, and how "
        "far a key stands from it counts for nothing",
        "look biases up by the distance, key - query, and not by the key's place",
    ),
    "sums": (
        "depends on the sum of two tokens' places where it should depend on how far apart they "
        "are: queries and keys are turned in opposite directions",
        "rotate queries and keys by the same angle a place",
    ),
    "farther": (
        "grows with the distance between two tokens in every head: the farthest key gets the most "
        "weight",
        "turn the sign: take slope × distance away from the logits",
    ),
    "heads": (
        "is the same at every distance, and queries are turned from head to head: places are "
        "counted along the heads",
        "rotate before heads and tokens change places, or count along the tokens: dimension -2 of "
        "(B, H, T, E)",
    ),
    "unmatched": (
        "of a token with itself is another number at every place: queries and keys are turned by "
        "two conventions (halves beside neighbours), or at two counts of places",
        "turn queries and keys by one function, with the same angles and the same pairs of "
        "channels",
    ),
    "uneven": (
        "of a token with the one before it is not one number: the steps that places are apart are "
        "of several sizes, as where places start again inside a sequence, are read off a table "
        "that is too short, or are counted in half precision, which has no odd number above 256",
        "count places 0, 1, 2, … over the whole sequence, and compute their angles in float32",
    ),
    "one turn": (
        "comes back after every full turn: all pairs of channels are turned by one angle a place, "
        "so that places a turn apart look alike",
        "give pair i of d channels an angle of its own, base ** (-2 * i / d): in Python i / d // 2 "
        "is (i / d) // 2, which is 0",
    ),
    "one pair": (
        "comes back after every full turn: one pair of channels is turned by places, and all "
        "others stand still, so that places a turn apart look alike",
        "give pair i of d channels the angle base ** (-2 * i / d) a place: without the division by "
        "d the others turn by next to nothing",
    ),
}
"""The words on how logits depend on places: what is said, and what to do."""
_OF_TURNS = ("unmatched", "uneven", "one turn", "one pair")


@stack_rule("misplaced-positions")
def misplaced_positions(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Attention whose logits between tokens that are alike depend on something else than how far
    apart these are.
    """
    sites = [site for site in attending(stack) if site[1].place_logits is not None]
    kinds = [seen.place_logits for _, seen in sites]
    for kind, (told, fix) in _PLACES.items():
        found = [site for site, one in zip(sites, kinds, strict=True) if one == kind]
        # Trained biases may have any order in a block; a turn is computed, and not trained.
        if found and (len(found) == len(sites) or kind in _OF_TURNS):
            yield Fault(
                where=[site for site, _ in found], message=f"a logit of q·k {told}", fix=fix
            )
    turned = [site for site in sites if site[1].places_in_values]
    if turned:
        yield Fault(
            severity=Severity.WARNING if len(turned) == len(sites) else Severity.INFO,
            where=[site for site, _ in turned],
            message="values are turned by their place too, and what attention adds up of them is "
            "turned back by nothing",
            fix="rotate queries and keys alone",
        )
    if len(kinds) > _FEW_BLOCKS and kinds[0] in ("apart", *_PLACES) and set(kinds[1:]) == {"none"}:
        yield Fault(
            where=[site for site, _ in sites[1:]],
            message=(
                "attention knows places in the first block alone, by a rotation or a bias of its "
                f"logits; in {len(sites) - 1} others that were looked at it knows none"
            ),
            fix="hand the bias, or the table of angles, on to every block",
        )


_FEW_BLOCKS = 3
