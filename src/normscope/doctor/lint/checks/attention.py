"""Attention that starts saturated, lacks its scale, or is a mean over the wrong axis."""

import math
import re
from collections.abc import Callable, Iterator, Sequence

from ...attended import AttentionMeasurements
from ...record import Stack, Sublayer
from ...result import Severity
from ..likes import odd_ones
from ..patient import Patient, initial_weights, listed
from ..rule import Fault, stack_rule

AttentionSite = tuple[Sublayer, AttentionMeasurements]
_FEW_KEYS = 6
"""A softmax over fewer is uneven by chance."""


def attending(stack: Stack) -> list[AttentionSite]:
    """Returns the attention of its blocks that was understood."""
    return [
        (sublayer, seen)
        for sublayer in stack.sublayers
        if sublayer.block > 0 and (seen := sublayer.measured.attention)
    ]


def counted(places: Sequence[AttentionSite], of: Sequence[AttentionSite]) -> str:
    """Says how many attentions are meant: "in all 4 attentions" or "in 1 of 4 attentions (block
    2)".
    """
    if len(places) == len(of):
        return f"in all {len(of)} attentions"
    blocks = sorted({sublayer.block for sublayer, _ in places})
    return f"in {len(places)} of {len(of)} attentions (block {listed(map(str, blocks), 5)})"


def _freezing(keys: float) -> float:
    """Returns the deviation of independent Gaussian logits beyond which a few of many keys get all
    the weight: √(2 ln keys).
    """
    return math.sqrt(2 * math.log(max(keys, 2.0)))


def _is_cosine(seen: AttentionMeasurements) -> bool:
    """Tells whether queries and keys have length 1: a temperature then bounds logits, and no width
    of heads asks for 1/√d.
    """
    length = math.sqrt(seen.head_width)
    return len(seen.normed) == 2 and all(
        abs(size * length - 1) < 0.1 for size in (seen.query_size, seen.key_size)
    )


_TEMPERATURE = 10.0
"""The largest that cosines are usually multiplied with."""


def _is_saturated(seen: AttentionMeasurements) -> bool:
    if _is_cosine(seen) and seen.scale is not None and abs(seen.scale) <= _TEMPERATURE:
        return False
    return seen.keys >= _FEW_KEYS and seen.deviation >= _freezing(seen.keys) and seen.largest >= 0.5


@stack_rule("attention-saturated", initial_weights)
def attention_saturated(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Attention at initial weights that copies one key, with what makes its logits large."""
    sites = attending(stack)
    found = [site for site in sites if _is_saturated(site[1])]
    if not found:
        return
    sublayer, worst = max(found, key=lambda site: site[1].deviation / _freezing(site[1].keys))
    cause, fix = _cause(stack, sublayer, worst)
    yield Fault(
        severity=Severity.INFO if _is_configured(patient, worst) else Severity.WARNING,
        where=[site for site, _ in found],
        message=(
            f"{counted(found, sites)} logits vary by up to {worst.deviation:.3g} between a query's "
            f"{worst.keys:.3g} keys, where a softmax freezes at √(2 ln {worst.keys:.3g}) = "
            f"{_freezing(worst.keys):.3g}: the largest weight is {worst.largest:.2g} in the mean, "
            f"the entropy {worst.entropy:.2g} of a plain mean's; {cause}"
        ),
        fix=fix,
    )


def _cause(stack: Stack, sublayer: Sublayer, seen: AttentionMeasurements) -> tuple[str, str]:
    """Returns the reason why logits are large, and what to change."""
    width = seen.head_width
    if seen.scale is not None and abs(seen.scale) * math.sqrt(width) >= width**0.25:
        return (
            f"q·k is multiplied by {seen.scale:.4g}, not by 1/√{width} = {width**-0.5:.4g}",
            _SCALED.format(width),
        )
    sizes = f"queries have entries of size {seen.query_size:.3g}, keys of {seen.key_size:.3g}"
    independent = (
        abs(seen.scale or width**-0.5) * math.sqrt(width) * seen.query_size * seen.key_size
    )
    if seen.deviation > 2 * independent:
        return (
            f"{sizes}, which would give {independent:.3g} were they independent: queries and keys "
            "point the same way",
            "draw the matrices of queries and keys independently of each other",
        )
    if seen.normed:
        return (
            f"{sizes} behind their norms",
            "start the gains of the norms of queries and keys at 1",
        )
    read = 1.0 if sublayer.formula.reads_norm else math.sqrt(sublayer.measured.stream_square)
    if read >= 2:
        return (
            f"{sizes}, for what they are made from has entries of size {read:.3g}",
            f"put a {stack.norm or 'norm'} before attention, or draw the embedding smaller",
        )
    return (
        f"{sizes}, for their matrices are drawn large",
        "draw the matrices of queries and keys with a standard deviation of 1/√d or less, d their "
        "inputs",
    )


_SCALED = "multiply q·k by 1/√d, d = {} the width of a head"
_ODD = 1.2
"""Factor beyond which a scale is another than that of most blocks."""
_MISSING = 0.7
"""The smallest factor of q·k at which the division by √d counts as missing, where nothing else
makes up for it.
"""
_NARROW = 8
"""Heads of fewer features have no √d to speak of."""
_SAME = 0.02


@stack_rule("attention-scale", initial_weights)
def attention_scale(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Attention whose q·k is multiplied by a constant that is not 1/√d, and whose weights do not
    make up for it.
    """
    sites = [site for site in attending(stack) if site[1].scale and not _is_cosine(site[1])]
    yield from _narrow_cosines(stack)
    odd = _odd_scales(sites)
    if odd:
        usual = next(seen for site in sites if site not in odd and (seen := site[1]))
        yield Fault(
            where=[site for site, _ in odd],
            message=(
                f"{counted(odd, sites)} q·k is multiplied by {odd[0][1].scale:.4g}, in most others "
                f"by {usual.scale:.4g}"
            ),
        )
    # What a scale has saturated already, in any block, is told as that.
    saturated = any(_is_saturated(seen) for _, seen in sites)
    rest = [site for site in sites if site not in odd and not saturated]
    for asked, severity, told in _TOLD:
        found = [site for site in rest if asked(site[1], stack.width)]
        rest = [site for site in rest if site not in found]
        if found:
            yield _unlike(
                found, sites, Severity.INFO if _is_meant(patient, found[0][1]) else severity, told
            )


_NARROW_COSINE = 1.0
"""The factor of cosines below which attention can hardly choose: the key that matches best then has
7 times the weight of the one that matches worst, of however many.
"""


def _narrow_cosines(stack: Stack) -> Iterator[Fault]:
    """Attention of queries and keys of length 1, whose logits stay within a bound that no training
    moves.
    """
    sites = attending(stack)
    found = [
        site
        for site in sites
        if _is_cosine(site[1])
        and site[1].scale is not None
        and abs(site[1].scale) <= _NARROW_COSINE
        and site[1].all_keys > _NARROW
    ]
    if found:
        _, seen = found[0]
        most = math.exp(2 * abs(seen.scale or 0.0))
        yield Fault(
            where=[site for site, _ in found],
            message=(
                f"{counted(found, sites)} queries and keys have length 1, and their product is "
                f"multiplied by a scale of {seen.scale:.3g}: logits lie within "
                f"±{abs(seen.scale or 0.0):.3g}, and of {seen.all_keys} keys none ever gets a "
                f"weight above {most / (most + seen.all_keys - 1):.2g}"
            ),
            fix=f"multiply them by √{seen.head_width}, by 10, or by a trained number: 1/√d is for "
            "queries and keys whose entries have size 1",
        )


_UNSCALED = frozenset({"gpt_neo", "dia", "dia_encoder", "dia_decoder"})
"""Families of transformers that were trained without a scale."""


def _is_meant(patient: Patient, seen: AttentionMeasurements) -> bool:
    """Tells whether the model's configuration gives its attention this number, or is of a family
    that has none.
    """
    config = getattr(patient.model, "config", None)
    given = getattr(config, "attention_multiplier", None)
    return getattr(config, "model_type", None) in _UNSCALED or (
        given is not None and given == seen.scale
    )


_FACTORS = re.compile("(qk|query|attention|attn).*(scale|scaling|multiplier|factor)")


def _is_configured(patient: Patient, seen: AttentionMeasurements) -> bool:
    """Whether a configuration names the factor that queries that are normed are multiplied with: it
    is a choice then, as Muse's 3.87.
    """
    if seen.scale is None or len(seen.normed) != len(("queries", "keys")):
        return False
    configs = [getattr(module, "config", None) for module in patient.model.modules()]
    for config in {id(one): one for one in configs if hasattr(one, "__dict__")}.values():
        for name, value in vars(config).items():
            is_number = isinstance(value, float) and value not in (0.0, 1.0)
            if is_number and _FACTORS.search(name):
                factor = abs(seen.scale) * math.sqrt(seen.head_width)
                if math.isclose(value, factor, rel_tol=1e-3):
                    return True
    return False


def _unlike(
    found: Sequence[AttentionSite], sites: Sequence[AttentionSite], severity: Severity, told: str
) -> Fault:
    seen = found[0][1]
    return Fault(
        severity=severity,
        where=[site for site, _ in found],
        message=f"{counted(found, sites)} q·k of heads of width {seen.head_width} is multiplied by "
        f"{seen.scale:.4g}, where 1/√{seen.head_width} is {seen.head_width**-0.5:.4g}: {told}; "
        f"logits vary by {seen.deviation:.2g} now"
        + (", for initial weights are small" if seen.deviation < 1 else ""),
        fix=_SCALED.format(seen.head_width)
        + ("" if severity != Severity.INFO else ", unless rates and initial weights follow µP too"),
    )


def _odd_scales(sites: Sequence[AttentionSite]) -> list[AttentionSite]:
    """Returns the attentions whose scale differs from most, both as a number and as a multiple of
    1/√d: heads of another width may keep either.
    """
    names = [str(place) for place in range(len(sites))]
    scales = [abs(seen.scale or 0.0) for _, seen in sites]
    widths = [
        scale * math.sqrt(seen.head_width) for scale, (_, seen) in zip(scales, sites, strict=True)
    ]
    odd = [{one.name for one in odd_ones(names, sizes, apart=_ODD)} for sizes in (scales, widths)]
    return [
        site for name, site in zip(names, sites, strict=True) if all(name in some for some in odd)
    ]


def _is_unscaled(seen: AttentionMeasurements, _: int) -> bool:
    sizes = seen.query_size * seen.key_size if seen.normed else seen.drawn
    scale = abs(seen.scale or 0.0)
    return (
        sizes is not None and seen.head_width >= _NARROW and min(scale, scale * sizes) >= _MISSING
    )


def _is_over(seen: AttentionMeasurements, number: float, within: float = _SAME) -> bool:
    """Tells whether the scale is 1 over a number."""
    return abs(abs(seen.scale or 0.0) * number - 1) < within


def _is_of_width(seen: AttentionMeasurements, width: int) -> bool:
    return width > seen.head_width and _is_over(seen, math.sqrt(width))


def _is_by_width_of_stream(seen: AttentionMeasurements, width: int) -> bool:
    return width > seen.head_width and _is_over(seen, width)


def _is_by_keys(seen: AttentionMeasurements, _: int) -> bool:
    keys = max(1, seen.all_keys)
    # One number may be both by chance.
    apart = max(keys, seen.head_width) > 1.1 * min(keys, seen.head_width)
    return apart and _is_over(seen, math.sqrt(keys), _EXACT)


_EXACT = 1e-4


def _is_by_heads(seen: AttentionMeasurements, width: int) -> bool:
    heads = width // seen.head_width
    # Of d² heads it is 1/d.
    return heads not in (1, seen.head_width, seen.head_width**2) and _is_over(
        seen, math.sqrt(heads), _EXACT
    )


_TOLD: tuple[tuple[Callable[[AttentionMeasurements, int], bool], Severity, str], ...] = (
    (
        _is_by_heads,
        Severity.WARNING,
        "this is 1/√H of the number of heads, not 1/√d of the width of one",
    ),
    (
        _is_unscaled,
        Severity.WARNING,
        "no 1/√d takes off what the width of a head multiplies logits with",
    ),
    (_is_of_width, Severity.WARNING, "this is 1/√d of the stream, not of a head"),
    (_is_by_width_of_stream, Severity.WARNING, "this is 1/d of the stream, not 1/√d of a head"),
    (
        lambda seen, _: seen.head_width > 1 and _is_over(seen, seen.head_width),
        Severity.INFO,
        "this is 1/d, as µP has it",
    ),
    (_is_by_keys, Severity.WARNING, "this is 1/√T of the tokens, another number for another batch"),
)
"""The tests of a scale, given attention and its stream's width, each with the severity and the
words where it holds.
"""


@stack_rule("softmax-axis")
def softmax_axis(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Attention whose weights sum to 1 along another dimension than the one that values are weighed
    along.
    """
    sites = attending(stack)
    found = [site for site in sites if site[1].wrong_axis]
    if found:
        yield Fault(
            where=[site for site, _ in found],
            message=(
                f"{counted(found, sites)} the softmax runs over {found[0][1].wrong_axis}, so that "
                "a query's weights do not sum to 1"
            ),
        )


@stack_rule("key-groups")
def key_groups(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Grouped queries: groups that no head reads, or keys and values that other heads share."""
    sites = attending(stack)
    unread = [site for site in sites if site[1].unread_groups]
    if unread:
        yield Fault(
            where=[site for site, _ in unread],
            message=(
                f"{counted(unread, sites)} groups of keys or values that no head reads: "
                f"{unread[0][1].unread_groups}. They are computed, and their weights get no "
                "gradient"
            ),
        )
    apart = [site for site in sites if site[1].groups_apart]
    if apart:
        yield Fault(
            where=[site for site, _ in apart],
            message=(
                f"{counted(apart, sites)} heads that share one group of keys share their values "
                "with other heads: one is repeated head by head, the other group by group"
            ),
        )
