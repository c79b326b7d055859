"""Attention at work: how its logits vary, where its weights go, along which axis they are a mean,
and what masks hide.

Read from the recorded pass: the softmax between a product of queries and keys and one with values,
or the one operation that computes all three, whose logits are then computed again from its queries
and keys.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from ...measure.passes import has_arithmetic
from ..find.branches import Branch
from ..find.streams import Stream
from ..identify.stacks import branches_of
from ..measured import AttentionMeasurements, MatrixPart
from ..record import Stack, with_measured
from ..trace.forward import Inputs, padding_in
from ..trace.graph import Graph
from ..trace.operations import FUSED, SOFTMAX, UNREPEATABLE, Origin, Ref, TracedValue
from .norms import places_along
from .parameters import size_of
from .reach import places_of, probed, seen_keys
from .recipe import matrix_gain

# B = sequences, H = all between them and queries, mostly heads, Q = queries, K = keys, E = width of
# a head

_ROWS = 32
"""Queries that are looked at, spread evenly over the sequence."""
_HIDDEN = 2000.0
"""Below the largest logit of a row: masks add -10,000 and less, or fill in -inf."""
_FEW = 8
"""Keys below which a row's weights tell little."""


def with_attention(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack], inputs: Inputs
) -> tuple[Stack, ...]:
    """The stacks with what was measured of the attention in them."""
    found = []
    with torch.no_grad():
        for stream, stack in zip(streams, stacks, strict=True):
            crosses = any(sublayer.kind == "cross_attention" for sublayer in stack.sublayers)
            padding = padding_in(inputs, crosses)
            both = zip(stack.sublayers, branches_of(stack, stream), strict=True)
            seen = [
                _of(graph, branch, padding, places=one.block in probed(stack))
                for one, branch in both
            ]
            found.append(with_measured(stack, [{"attention": attention} for attention in seen]))
    return tuple(found)


@dataclass(slots=True)
class _Factor:
    """What is multiplied with on the way to a value."""

    constant: float = 1.0
    trained: bool = False
    """Whether a trained number is among it."""
    product: int | None = None
    """The product with weights that the value was made by, with no norm after it."""
    normed: bool = False
    over_others: bool = False
    """Whether that norm's statistics leave out the dimension of features."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Attention in a recorded pass, by numbers."""

    queries: int
    keys: int
    values: int | None
    scores: int | None
    """The product of queries and keys; None where one operation computes all, or there are
    several.
    """
    softmax: int


def _of(
    graph: Graph, branch: Branch, padding: Mapping[str, Tensor], *, places: bool
) -> AttentionMeasurements | None:
    """What was measured of a branch's attention, the first of several; None where it has none that
    is understood.

    padding: by the kind of attention a mask of (sequences, keys), False at tokens without meaning.
    places: whether to look for what it knows of places.
    """
    if branch.kind not in ("attention", "cross_attention"):
        return None
    place = next(_places(graph, branch), None)
    if place is None:
        return None
    try:
        found = _measured(graph, place, branch.kind == "attention", padding.get(branch.kind))
    except UNREPEATABLE:
        return None
    if found is None or found.wrong_axis or not places or branch.kind != "attention":
        return found
    after, operands = _after(graph, place), (place.queries, place.keys)
    with suppress(*UNREPEATABLE):
        of_places = places_of(
            graph, operands, place.values, lambda given: _logits(graph, place, after, given)
        )
        found = replace(found, **of_places)
    return found


def _logits(graph: Graph, place: _Place, after: _Factor, given: dict[int, Tensor]) -> Tensor:
    """(..., Q, K), masks and biases included, with other values for some of those that queries and
    keys are made of.
    """
    if FUSED not in graph.values[place.softmax].op:
        return graph.trace.again(given, graph.values[place.softmax].inputs[0])
    query, key = (graph.trace.again(given, n) for n in (place.queries, place.keys))
    return _fused_logits(
        graph, place, query, key, torch.arange(query.shape[-2]).to(query.device), after
    )[1]


def _places(
    graph: Graph, branch: Branch, is_score: Callable[[TracedValue], bool] | None = None
) -> Iterator[_Place]:
    """is_score: of a product, whether it is one of queries and keys; without it, one that adds
    nothing else.
    """
    is_score = is_score or graph.is_data_product
    for number in branch.computed:
        value = graph.values[number]
        if FUSED in value.op and value.output == 0:
            given = [argument.number for argument in value.args[:3] if isinstance(argument, Ref)]
            if len(given) == 3:
                yield _Place(
                    queries=given[0], keys=given[1], values=given[2], scores=None, softmax=number
                )
        elif value.op in SOFTMAX:
            scores = [
                n for n in branch.computed if is_score(graph.values[n]) and graph.depends(number, n)
            ]
            if scores and len(factors := graph.factors(graph.values[scores[0]])) == 2:
                weighed = _weighed(graph, number)
                yield _Place(
                    queries=factors[0],
                    keys=factors[1],
                    values=None if weighed is None else weighed[2],
                    scores=scores[0] if len(scores) == 1 else None,
                    softmax=number,
                )


def operands_of(graph: Graph, branch: Branch) -> Iterator[tuple[int, MatrixPart]]:
    """The numbers of the queries, keys and values of a branch's attention, each with the part that
    makes it.
    """

    def is_score(value: TracedValue) -> bool:
        # BLOOM's adds its biases at once.
        factors = graph.factors(value)
        return len(factors) == 2 and all(graph.values[n].is_data for n in factors)

    for place in _places(graph, branch, is_score):
        yield place.queries, "query"
        yield place.keys, "key"
        if place.values is not None:
            yield place.values, "value"


def _weighed(graph: Graph, softmax: int) -> tuple[int, int, int] | None:
    """Of the product that a softmax weighs values in: the weights as it reads them, which factor
    they are, and values.

    None where anything but rearrangement comes between.
    """
    todo, seen = [softmax], set[int]()
    while todo:
        for number in graph.consumers[todo.pop()]:
            factors = graph.factors(graph.values[number])
            mine = [n for n in factors if graph.rearranged(n) == softmax]
            if len(factors) == 2 and len(mine) == 1:
                place = factors.index(mine[0])
                # A matrix that is no data mixes heads with each other, and weighs no tokens.
                return (
                    (mine[0], place, factors[1 - place])
                    if graph.values[factors[1 - place]].is_data
                    else None
                )
            if number not in seen and graph.rearranged(number) == softmax:
                seen.add(number)
                todo.append(number)
    return None


def _measured(
    graph: Graph, place: _Place, itself: bool, padding_BK: Tensor | None
) -> AttentionMeasurements | None:
    values = graph.values
    width = values[place.queries].shape[-1]
    wrong = _wrong_axis(graph, place) if FUSED not in values[place.softmax].op else ""
    query, key = _factor(graph, place.queries, None), _factor(graph, place.keys, None)
    after = _after(graph, place)
    if wrong or (scores := _scores(graph, place, after)) is None:
        return AttentionMeasurements(head_width=width, wrong_axis=wrong) if wrong else None
    rows, raw_BHQK, logits_BHQK = scores
    weights = logits_BHQK.softmax(-1)
    hidden = logits_BHQK <= logits_BHQK.amax(-1, keepdim=True) - _HIDDEN
    shown = (~hidden & ~logits_BHQK.isneginf()).to(weights)
    count = shown.sum(-1)
    enough = count >= min(_FEW, float(count.max()))
    finite = raw_BHQK.nan_to_num(0, 0, 0)
    mean = (finite * shown).sum(-1) / count.clamp(min=1)
    square = ((finite - mean[..., None]).square() * shown).sum(-1) / count.clamp(min=1)
    entropy = -torch.xlogy(weights, weights).sum(-1) / count.clamp(min=2).log()
    scale = query.constant * key.constant * after.constant
    made = {"queries": query, "keys": key}
    if place.values is not None:
        made["values"] = _factor(graph, place.values, None)
    return AttentionMeasurements(
        head_width=width,
        keys=float(count[enough].mean()),
        all_keys=logits_BHQK.shape[-1],
        deviation=float(square[enough].mean().sqrt()),
        entropy=float(entropy[enough].mean()),
        largest=float(weights.amax(-1)[enough].mean()),
        scale=None
        if query.trained or key.trained or after.trained or after.product is not None
        else scale,
        normed=tuple(side for side in ("queries", "keys") if made[side].normed),
        normed_wrong=tuple(side for side in ("queries", "keys") if made[side].over_others),
        unnormed=_unnormed(
            graph, {side: one.product for side, one in made.items() if one.product is not None}
        ),
        query_size=size_of(values[place.queries].tensor) / abs(query.constant or 1),
        key_size=size_of(values[place.keys].tensor) / abs(key.constant or 1),
        drawn=_drawn(
            graph, [made[side].product for side in ("queries", "keys", "values") if side in made]
        ),
        **seen_keys(
            _in_sequences(graph, place, query.product, weights, padding_BK),
            rows,
            itself,
            padding_BK,
        ),
    )


def _in_sequences(
    graph: Graph, place: _Place, product: int | None, weights: Tensor, padding_BK: Tensor | None
) -> Tensor:
    """Weights whose heads stand in one dimension with sequences, with those of a sequence beside
    each other.
    """
    if (
        padding_BK is None
        or product is None
        or weights.ndim != 3
        or len(weights) == len(padding_BK)
    ):
        return weights
    made = graph.values[product].tensor
    rows = graph.trace.again({product: places_along(made.shape, 0).to(made)}, place.queries)[
        :, 0, 0
    ]
    return weights if len(made) % len(padding_BK) else weights[rows.argsort(stable=True)]


def _wrong_axis(graph: Graph, place: _Place) -> str:
    """The dimension of the softmax and that of the keys, where these are two; "" where they are
    one, or not known.
    """
    weighed = _weighed(graph, place.softmax)
    value = graph.values[place.softmax]
    if weighed is None or place.scores is None:
        return ""
    number, factor, _ = weighed
    axes = range(len(value.shape))
    taken = int(value.args[1]) % len(value.shape)
    if taken == axes[-1] and factor == 0 and _keeps_last(graph, place.softmax, number):
        return ""
    right = [
        axis
        for axis in axes
        if _runs_along(graph, place.softmax, number, axis, -1 if factor == 0 else -2)
    ]
    if len(right) != 1 or taken in right:
        return _joint(
            graph.values[number].tensor.float(), len(value.tensor), -1 if factor == 0 else -2
        )
    return _axes(value.shape, taken, right[0])


def _joint(weights: Tensor, sequences: int, keys: int) -> str:
    """What is said of weights that sum to 1 over all heads of a query at once; "" of others."""
    read = weights.reshape(sequences, -1, *weights.shape[-2:])
    if read.shape[1] == 1:
        return ""
    summed = read.sum(keys)
    together = torch.allclose(summed.sum(1), torch.ones_like(summed[:, 0]), atol=1e-4)
    return f"heads and keys at once: {read.shape[1]} heads share one sum" if together else ""


def _axes(shape: torch.Size, taken: int, right: int) -> str:
    """Both as words, of the usual order of dimensions."""
    names = {0: "sequences", len(shape) - 3: "sequences or heads" if len(shape) == 3 else "heads"}
    names |= {axis: "queries" for axis in (len(shape) - 2, len(shape) - 1) if axis != right}
    return (
        f"dimension {taken} ({names.get(taken, 'no keys')}) of {tuple(shape)}, with keys in "
        f"dimension {right}"
    )


_KEEPING = frozenset(
    {
        "view",
        "reshape",
        "_unsafe_view",
        "expand",
        "clone",
        "detach",
        "alias",
        "_to_copy",
        "unsqueeze",
    }
)


def _keeps_last(graph: Graph, softmax: int, number: int) -> bool:
    """Whether a rearrangement is known to leave the last dimension where it is."""
    last = graph.values[softmax].shape[-1]
    while number != softmax:
        value = graph.values[number]
        if (
            value.op not in _KEEPING
            or value.shape[-1] != last
            or len(graph.predecessors[number]) != 1
        ):
            return False
        (number,) = graph.predecessors[number]
    return True


def _runs_along(graph: Graph, softmax: int, read: int, axis: int, over: int) -> bool:
    """Whether one axis of the softmax is the one that a later rearrangement of it is summed
    over.
    """
    shape = graph.values[softmax].shape
    places = places_along(shape, axis).to(graph.values[softmax].tensor)
    made = graph.trace.again({softmax: places}, read)
    return made.shape[over] == shape[axis] > 1 and bool((made.diff(dim=over) == 1).all())


def _factor(graph: Graph, number: int, until: int | None) -> _Factor:
    """What numbers multiply a value since `until`, or else since the last norm or product with
    weights.
    """
    found = _Factor()
    while number != until:
        value = graph.values[number]
        if until is None and number in graph.norms:
            found.normed, found.over_others = True, -1 not in graph.norms[number].over
            return found
        if until is None and graph.is_weight_product(value):
            found.product = number
            return found
        before = [n for n in graph.predecessors[number] if until is None or graph.depends(n, until)]
        if not before:
            return found
        # Positions that are rotated into a value come with tables, which are smaller.
        through = max(before, key=lambda n: graph.values[n].tensor.numel())
        _multiply(graph, found, value, through)
        number = through
    return found


def _multiply(graph: Graph, found: _Factor, value: TracedValue, through: int) -> None:
    if value.op not in ("mul", "div") or len(value.args) != 2:
        return
    others = [a for a in value.args if not (isinstance(a, Ref) and a.number == through)]
    if len(others) != 1:
        return
    (other,) = others
    number = nan
    if isinstance(other, int | float):
        number = float(other)
    elif isinstance(other, Ref) and not graph.values[other.number].is_data:
        given = graph.values[other.number]
        found.trained |= (
            given.origin == Origin.TRAINABLE
            and given.tensor.numel() < graph.values[through].shape[-1]
        )
        is_number = given.tensor.numel() == 1 and not given.tensor.is_complex()
        number = float(given.tensor) if is_number else nan
    if number == number and number:
        found.constant *= number if value.op == "mul" else 1 / number


def _after(graph: Graph, place: _Place) -> _Factor:
    """What multiplies the product of queries and keys; with `product` set where that is not
    known.
    """
    value = graph.values[place.softmax]
    if place.scores is not None:
        found = _factor(graph, value.inputs[0], place.scores)
        found.constant *= float(graph.values[place.scores].kwargs.get("alpha", 1))
        return found
    if FUSED in value.op:
        given = _arguments(value).get("scale")
        return _Factor(
            graph.values[place.queries].shape[-1] ** -0.5 if given is None else float(given)
        )
    return _Factor(product=place.softmax)


def _arguments(value: TracedValue) -> dict[str, Any]:
    names = [argument.name for argument in value.function._schema.arguments]
    return dict(zip(names, value.args, strict=False)) | value.kwargs


def _scores(graph: Graph, place: _Place, after: _Factor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Indices of the queries, products of queries and keys with their scale, and logits with biases
    and masks.
    """
    value = graph.values[place.softmax]
    if FUSED not in value.op:
        whole = graph.values[value.inputs[0]].tensor
        if whole.ndim < 2 or int(value.args[1]) % whole.ndim != whole.ndim - 1:
            return None
        rows = _rows(whole.shape[-2], whole)
        raw = logits = whole.index_select(-2, rows).float()
        scores = None if place.scores is None else graph.values[place.scores].tensor
        known = scores is not None and has_arithmetic(scores)
        if known and scores is not None and scores.numel() == whole.numel():
            raw = scores.reshape(whole.shape).index_select(-2, rows).float() * after.constant
        return rows, raw, logits
    query, key = (graph.values[n].tensor for n in (place.queries, place.keys))
    rows = _rows(query.shape[-2], query)
    return rows, *_fused_logits(graph, place, query, key, rows, after)


def _fused_logits(
    graph: Graph, place: _Place, query: Tensor, key: Tensor, rows: Tensor, after: _Factor
) -> tuple[Tensor, Tensor]:
    """Of one operation that computes all of attention: products with their scale, and logits with
    biases and masks.
    """
    arguments = _arguments(graph.values[place.softmax])
    if key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    raw = (query.index_select(-2, rows) @ key.mT).float() * after.constant
    logits = raw
    mask = arguments.get("attn_mask", arguments.get("attn_bias"))
    if isinstance(mask, Ref):
        given = graph.values[mask.number].tensor
        given = given if given.shape[-2] == 1 else given.index_select(-2, rows)
        logits = raw.masked_fill(~given, -inf) if given.dtype == torch.bool else raw + given.float()
    if arguments.get("is_causal"):
        logits = logits.masked_fill(torch.arange(key.shape[-2]).to(rows) > rows[:, None], -inf)
    return raw, logits


def _rows(queries: int, like: Tensor) -> Tensor:
    return torch.linspace(0, queries - 1, min(queries, _ROWS)).round().long().to(like.device)


def _drawn(graph: Graph, products: Sequence[int | None]) -> float | None:
    """What queries' and keys' matrices make of a logit, over what two like the values' would; None
    where unknown.
    """
    gains = [matrix_gain(graph, n) for n in products if n is not None]
    return (gains[0] * gains[1]) ** 0.5 / gains[2] if len(gains) == 3 and gains[2] else None


def _unnormed(graph: Graph, products: Mapping[str, int]) -> tuple[str, ...]:
    """Of the products that make them, those that read a value of which others read a norm."""
    sources: dict[str, int] = {}
    bare: dict[str, int] = {}
    for side, product in products.items():
        bare[side] = number = graph.under(graph.predecessors[product][0], "same", "scale")
        if (step := graph.step(number)) is not None and step.kind == "norm":
            sources[side] = graph.under(step.sources[0], "same", "scale")
    return tuple(
        side for side, number in bare.items() if side not in sources and number in sources.values()
    )
