"""The branches of the residual stream: where their input leaves the stream, their kinds, and the
norms inside them.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod
from typing import Literal

from ...placement import SublayerKind
from ..trace.flow import mixes_positions
from ..trace.graph import Graph
from ..trace.operations import FUSED, PRODUCTS, SOFTMAX, UNREPEATABLE, TracedValue, walked


@dataclass(frozen=True, slots=True, order=True)
class InnerPlace:
    """The place of a norm within F, or within a mean over depth."""

    name: Literal["score", "value", "output", "hidden", "mixer", "key"]
    """score is of attention's queries and keys, mixer of a way of mixing tokens that is no
    attention, and key of a mean over depth."""
    by_head: bool = False
    """True where parts of a token's features are normed each on their own."""

    def __str__(self) -> str:
        return f"{self.name} by head" if self.by_head else self.name


BranchKind = SublayerKind | Literal["convolution", "mixer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """F of one sub-layer, from the value that it reads to its output before scales, norms and the
    residual sum.
    """

    output: int
    reads: tuple[int, ...]
    """Numbers of the values it reads; one, unless it reads the stream at several places."""
    kind: BranchKind
    inside: tuple[InnerPlace, ...]
    """The places of norms within F, as `inner_norms` finds them."""
    name: str
    """Path of the module that computes it, or of the one with its last weight matrix."""
    one_head: bool
    """True where its scores are products of vectors as wide as the stream; False for branches that
    are no attention.
    """
    computed: tuple[int, ...] = ()
    """Numbers of the values between what it reads, of other streams too, and its output, which is
    the last.
    """
    memory: tuple[int, ...] = ()
    """The values of other streams that cross-attention reads."""
    weighed: int = 0
    """Numbers of what it computes with weights, as bits; none where it only combines what it
    reads.
    """
    gains: frozenset[int] = frozenset()
    """Numbers of the tensors, gains and shifts, of the norms between the last sum and the one value
    that it reads.
    """


def find_branch(graph: Graph, output: int, stream: int, others: int, lent: int = 0) -> Branch:
    """Returns the branch that ends in the value `output`.

    stream: numbers of its own stream's values, as bits; others: those of other streams. lent:
    numbers of what earlier branches computed with weights; this branch may read them, as where
    layers share keys and values, and they are then no part of it.
    """
    region, entries = _region(graph, output, stream | others | lent)
    if not any(stream >> n & 1 for n in entries):
        region, entries = _region(graph, output, stream | others)
    own = [n for n in entries if stream >> n & 1] or entries
    if len({graph.rearranged(n) for n in own}) == 1:
        own = own[:1]
    if len(own) == 1:  # the last value that all of the branch passes and that is still light
        own = [
            next((n for n in graph.passed(own[0], output) if _leads_to(graph, n, own[0])), own[0])
        ]
    reads = own
    whole = region
    region = [n for n in whole if any(graph.depends(n, read) for read in reads)]
    outside = sorted(set(whole) - set(region))
    products = [n for n in region if graph.is_weight_product(graph.values[n])]
    memory_products = [n for n in outside if graph.is_weight_product(graph.values[n])]
    # What several streams are multiplied with before they are read is made with weights too.
    beside = [n for n in outside if not any(graph.depends(read, n) for read in reads)]
    projected = [n for n in beside if any(graph.depends(n, product) for product in memory_products)]
    memory = tuple(n for n in entries if not stream >> n & 1 and others >> n & 1)
    meetings = [
        graph.values[n]
        for n in region
        if graph.is_data_product(graph.values[n]) or FUSED in graph.values[n].op
    ]
    attends = bool(meetings)
    kind: BranchKind = "feed_forward"
    # What only scales or shifts a norm is no memory that is attended to.
    if any(n in projected for value in meetings for n in value.inputs):
        kind = "cross_attention"
    elif attends and _weighs_tokens(graph, region, reads):
        kind = "attention"
    elif _mixes(graph, reads, output, attends):
        weighs = any(graph.values[n].op in SOFTMAX or FUSED in graph.values[n].op for n in region)
        kind = "attention" if attends and weighs else "mixer" if attends else "convolution"
    scope = region + (_lent(graph, region, meetings) if kind == "attention" else projected)
    return Branch(
        output=output,
        reads=tuple(reads),
        kind=kind,
        inside=inner_norms(graph, scope, reads, kind),
        name=_module(graph, region, products),
        one_head=attends
        and graph.values[meetings[0].inputs[0]].shape[-1] == graph.values[reads[0]].shape[-1],
        computed=tuple(_computed(graph, whole, reads, memory)),
        memory=memory,
        weighed=sum(
            1 << n
            for n in whole
            if any(graph.depends(n, product) for product in products + memory_products)
        ),
        gains=_gains(graph, reads[0]) if len(reads) == 1 else frozenset(),
    )


def _gains(graph: Graph, number: int) -> frozenset[int]:
    """Returns the parameters that multiply or shift a value, from the last sum on."""
    found: set[int] = set()
    while (step := graph.step(number)) is not None and step.kind in ("norm", "scale", "same"):
        # An embedding's table is nothing that a norm multiplies with.
        given = [
            n
            for n in graph.values[number].inputs
            if step.kind != "same" and not graph.values[n].is_data
        ]
        found |= {leaf.number for n in given for leaf in graph.trace.leaves(n) if leaf.shape}
        (number,) = step.sources
    return frozenset(found)


def _region(graph: Graph, output: int, stops: int) -> tuple[list[int], list[int]]:
    """Returns all that a value is computed from, back to the first values among `stops`, and
    those.
    """

    def is_entry(number: int) -> bool:
        return number != output and bool(stops >> number & 1)

    reached = sorted(walked(output, lambda n: () if is_entry(n) else graph.predecessors[n]))
    return [n for n in reached if not is_entry(n)], list(filter(is_entry, reached))


def _computed(
    graph: Graph, whole: list[int], reads: list[int], memory: tuple[int, ...]
) -> list[int]:
    """Returns a region without what leads to the values that the branch reads, and without norms of
    other streams.
    """
    before = [n for n in whole if len(reads) == 1 and graph.depends(reads[0], n)]
    around = [
        n
        for n in whole
        for other in memory
        if graph.depends(n, other) and _leads_to(graph, n, other)
    ]
    return [n for n in whole if n not in reads and n not in before and n not in around]


def _leads_to(graph: Graph, number: int, target: int) -> bool:
    """Tells whether a value is made from the target alone by sums, scales and norms."""
    # Of several streams in one tensor, steps lead to the value whose view the target is.
    ends = {target, graph.rearranged(target)} if graph.connections.made else {target}

    way = walked(number, lambda at: () if at in ends else graph.sources(at))
    return all(at in ends or (graph.step(at) is not None and at >= min(ends)) for at in way)


_SORTING = frozenset({"sort", "argsort"})


def _mixes(graph: Graph, reads: list[int], output: int, attends: bool) -> bool:
    if attends and graph.values[reads[0]].shape[-2:-1] == (1,):
        # Of one token alone, such as the class token of CaiT, nothing else can change.
        return True
    try:
        mixes = mixes_positions(graph, reads[0], output) if len(reads) == 1 else None
    except UNREPEATABLE:  # what was recorded decides
        mixes = None
    between = [graph.values[n].op for n in graph.between(reads[0], output)]
    # Where tokens are sorted, another one moves those that come after it, and each is still by
    # itself.
    mixes = None if not _SORTING.isdisjoint(between) else mixes
    convolves = "convolution" in between
    return attends or convolves if mixes is None else mixes


def _lent(graph: Graph, region: list[int], meetings: list[TracedValue]) -> list[int]:
    """Returns the values that compute keys and values of an earlier block, from the product with
    weights on.
    """
    inside = set(region)
    outside = [n for one in meetings for n in graph.predecessors[one.number] if n not in inside]

    def before(number: int) -> Iterable[int]:
        made = graph.is_weight_product(graph.values[number])
        return () if made else graph.predecessors[number]

    return sorted({n for first in outside for n in walked(first, before)})


def _weighs_tokens(graph: Graph, region: list[int], reads: list[int]) -> bool:
    """Tells whether a softmax has a weight for every pair of tokens. One token changes no other
    where keys and values are those of an earlier block, or where a window shows each token itself
    alone.
    """
    if len(reads) != 1:
        return False
    rows = graph.values[reads[0]].rows
    for number in region:
        value = graph.values[number]
        if value.op not in SOFTMAX or len(value.shape) < 3:
            continue
        *outer, queries, keys = value.shape
        # Where heads or experts are weighed, every token has a matrix of its own.
        matrices = prod(outer)
        if queries == keys > 2 and matrices < rows and matrices * queries % rows == 0:
            return True
    return False


def inner_norms(
    graph: Graph, region: list[int], reads: list[int], kind: BranchKind
) -> tuple[InnerPlace, ...]:
    """Returns the places of norms within F, sorted: hidden where F neither attends nor mixes."""
    softmaxes = [n for n in region if graph.values[n].op in SOFTMAX]
    fused = [graph.values[n] for n in region if FUSED in graph.values[n].op]
    scores = softmaxes + [number for value in fused for number in value.inputs[:2]]
    softmaxes += [value.number for value in fused]
    found = []
    sizes = []
    inside = set(region)
    for number in region:
        if number not in graph.norms or number in reads:
            continue
        source = graph.norms[number].source
        name: Literal["score", "value", "output", "hidden", "mixer"] = (
            "mixer" if kind == "mixer" else "hidden"
        )
        by_head = graph.values[source].rows > graph.values[_product_before(graph, source)].rows
        attends = kind in ("attention", "cross_attention")
        if attends and any(graph.depends(number, n) for n in softmaxes):
            name, by_head = "output", graph.values[source].rows > graph.values[reads[0]].rows
        elif attends:
            name = "score" if any(graph.depends(n, number) for n in scores) else "value"
        if name == "score":
            product = _product_before_rotation(graph, source, inside)
            by_head = graph.values[source].rows > graph.values[product].rows
        found.append(InnerPlace(name, by_head))
        sizes.append(graph.values[number].shape[-1:])
    # Where all queries share one key, its norm has no more rows than it, and yet is that of a head.
    of_a_head = {
        size
        for place, size in zip(found, sizes, strict=True)
        if place.name == "score" and place.by_head
    }
    return tuple(
        sorted(
            replace(place, by_head=True) if place.name == "score" and size in of_a_head else place
            for place, size in zip(found, sizes, strict=True)
        )
    )


def _product_before(graph: Graph, number: int) -> int:
    """Returns the last matrix product on the way to a value, or where that way forks."""
    while graph.values[number].op not in PRODUCTS and len(graph.predecessors[number]) == 1:
        (number,) = graph.predecessors[number]
    return number


def _product_before_rotation(graph: Graph, number: int, region: Container[int]) -> int:
    """Returns the last matrix product of a branch on the way to queries or keys, where that way
    forks along its largest part; or where it comes into the branch.

    A rotation takes them apart and puts them together again, with tables that are smaller.
    """
    while graph.values[number].op not in PRODUCTS:
        before = [n for n in graph.predecessors[number] if n in region]
        if not before:
            break
        number = max(before, key=lambda n: graph.values[n].tensor.numel())
    return number


def _module(graph: Graph, region: list[int], products: list[int]) -> str:
    """Returns the innermost module in which all of F's products with weights run; the last one's
    where that is the model.
    """
    paths = [graph.values[n].modules for n in products or region]
    common = ""
    for names in takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False)):
        common = names[0]
    return common or (paths[-1][-1] if paths and paths[-1] else "")
