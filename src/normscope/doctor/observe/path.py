"""Observations on a stream's way through a recorded pass: where its gradient is stopped, its start
is added again, numbers are drawn at random, and branches are kept out for ever by a factor of 0
that is a number in the code or a buffer, which no training changes.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import torch

from ..find.branches import Branch
from ..find.streams import Stream
from ..measured import AlteredSkip, RecordedPlace
from ..trace.graph import Graph
from ..trace.operations import (
    FUSED,
    PRODUCTS,
    REARRANGING,
    SOFTMAX,
    Origin,
    TracedValue,
    bits,
    walked,
)

_DRAWN = frozenset(
    {"bernoulli", "native_dropout", "uniform", "rand", "rand_like", "normal", "randn", "randn_like"}
)

ROUNDING = frozenset({"ceil", "floor", "round", "sign", "trunc"})
"""Operations whose gradient is 0 wherever there is one."""


def skip_is_stopped(graph: Graph, stream: Stream, found: RecordedPlace) -> bool:
    """Tells whether the skip of a sum comes from earlier sums, and on every way from there through
    a `detach`.

    What a stream starts from may be given without a gradient, as tables that stay as they are.
    """
    before = {
        join for join in stream.joins if join != found.sum and graph.depends(found.stream, join)
    }
    ways = list(_ways_back(graph, found, before))
    return bool(ways) and all(ways)


def _ways_back(graph: Graph, found: RecordedPlace, before: set[int]) -> Iterator[bool]:
    """For every way from a sum back to an earlier one, whether a gradient is stopped on it."""

    def back(place: tuple[int, bool]) -> list[tuple[int, bool]]:
        number, stopped = place
        stopped = stopped or graph.values[number].op == "detach"
        return [(n, stopped) for n in (() if number in before else graph.sources(number))]

    return (stopped for number, stopped in walked((found.sum, False), back) if number in before)


def precision(graph: Graph, branch: Branch) -> torch.dtype | None:
    """Returns the narrowest dtype that a branch asks for its matrix products; None without any."""
    values = [graph.values[n] for n in branch.computed]
    made = [v.asked_dtype or v.tensor.dtype for v in values if v.op in PRODUCTS or FUSED in v.op]
    return min(
        (dtype for dtype in made if dtype.is_floating_point),
        key=lambda dtype: dtype.itemsize,
        default=None,
    )


_CURVES = frozenset(
    {
        "relu",
        "gelu",
        "silu",
        "sigmoid",
        "tanh",
        "softplus",
        "elu",
        "leaky_relu",
        "mish",
        "hardswish",
    }
)
_LINEAR = frozenset(
    {
        "add",
        "sub",
        "neg",
        "slice",
        "split",
        "split_with_sizes",
        "chunk",
        "cat",
        "stack",
        "index_select",
    }
)


def curves_of(graph: Graph, branch: Branch) -> Literal["", "none", "last", "twice"]:
    """Classifies the nonlinearities of a feed-forward of two or more matrices: "none" where it has
    only products and sums; "last" where one follows the last matrix and multiplies nothing; "twice"
    where one is taken of another's result; "" otherwise.
    """
    values = [graph.values[n] for n in branch.computed]
    products = [value.number for value in values if graph.is_weight_product(value)]
    if branch.kind != "feed_forward" or len(products) < 2:
        return ""
    at = branch.output
    while (value := graph.values[at]).number not in products and len(graph.predecessors[at]) == 1:
        if value.op in _CURVES:
            return "last"
        (at,) = graph.predecessors[at]
    if any(map(partial(_is_of_a_curve, graph), values)):
        return "twice"
    straight = _LINEAR | REARRANGING | PRODUCTS
    multiples = {
        v.number
        for v in values
        if v.op in ("mul", "div") and len(graph.predecessors[v.number]) == 1
    }
    return (
        "none" if all(value.op in straight or value.number in multiples for value in values) else ""
    )


_CURVES_OF_UNITS = _CURVES - {"sigmoid", "tanh", "softplus"}
"""The nonlinearities that are not parts of others, as those of tanh(softplus(x)) are."""


def _is_of_a_curve(graph: Graph, value: TracedValue) -> bool:
    """Tells whether a nonlinearity is taken of another's result; a ReLU of a ReLU, which changes
    nothing, does not count.
    """
    if value.op not in _CURVES_OF_UNITS or len(graph.predecessors[value.number]) != 1:
        return False
    (before,) = graph.predecessors[value.number]
    inner = graph.values[graph.rearranged(before)]
    return inner.op in _CURVES_OF_UNITS and {inner.op, value.op} != {"relu"}


def altered(graph: Graph, streams: Sequence[Stream]) -> tuple[AlteredSkip, ...]:
    """Finds what skips go through beside sums, scales and norms: a dropout, or a nonlinearity, a
    bound or a factor made of data, between the sums.

    Of each place what it is, the innermost module that runs, and the number of the stack that the
    stream goes on in.
    """
    found = [
        AlteredSkip("dropout", graph.values[join].module, place)
        for place, stream in enumerate(streams)
        for join in stream.joins
        if join in graph.trace.dropped and join != stream.last
    ]
    lasts = {stream.last for stream in streams}
    for place, stream in enumerate(streams):
        for at in bits(stream.sources):
            curve, at = _past_factors(graph, at, lasts)
            while at not in lasts and graph.values[at].op in _CURVES | {"clamp", *REARRANGING}:
                curve = curve or graph.values[at].op * (graph.values[at].op not in REARRANGING)
                (at,) = graph.predecessors[at][:1] or [at]
                if not graph.predecessors[at]:
                    break
            if curve and at in lasts:
                found.append(AlteredSkip(curve, graph.values[at].module, place))
    return tuple(found)


def _past_factors(graph: Graph, at: int, lasts: set[int]) -> tuple[str, int]:
    """ "factor", and what is multiplied, where that is a stream's end and the factor is made of
    data, of a number for each feature."""
    value = graph.values[at]
    before = graph.predecessors[at]
    if value.op != "mul" or len(before) != 2 or lasts.isdisjoint(before):
        return "", at
    ends = [n for n in before if n in lasts]
    factors = [graph.values[n].tensor for n in before if n not in lasts]
    # A mask of places hides what is padded, and keeps the rest.
    if len(ends) == 1 and factors[0].shape[-1:] == value.shape[-1:]:
        return "factor", ends[0]
    return "", at


def first_nan(graph: Graph) -> str:
    """Names the operation that makes the first NaN from numbers without any, as a clause; "" where
    the pass has no NaN.
    """
    nan = [
        value
        for value in graph.values
        if value.tensor.is_floating_point() and bool(value.tensor.float().isnan().any())
    ]
    if not nan:
        return ""
    (value, *_) = nan
    at = f" in {value.module}" if value.module else ""
    if value.op in SOFTMAX:
        dimension = int(value.args[1]) % len(value.shape)
        rows = graph.values[value.inputs[0]].tensor.isneginf().all(dimension)
        if bool(rows.any()):
            return (
                f"the softmax over dimension {dimension} of {tuple(value.shape)}{at} has "
                f"{int(rows.sum())} rows of nothing but -inf: a mask hides all that it runs over"
            )
    return f"{value.op}{at} makes the first NaN"


def added_again(graph: Graph, stream: Stream) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields tensors that are the same for every input, differ from token to token, and are added
    to a stream several times: the name of each with the numbers of the sums.
    """
    groups: list[tuple[torch.Tensor, str, tuple[int, ...]]] = []
    for number in bits(stream.values):
        value, step = graph.values[number], graph.step(number)
        if (
            value.op not in ("add", "sub")
            or step is None
            or step.kind != "same"
            or value.tensor.is_meta
        ):
            continue
        for given in (n for n in value.inputs if not graph.values[n].is_data):
            tensor = graph.values[given].tensor
            if tensor.shape[-1:] != (stream.width,):
                continue
            # A bias adds the same vector to every token, however it was broadcast.
            rows = tensor.reshape(-1, stream.width)
            if bool((rows == rows[:1]).all()):
                continue
            name = next((leaf.names[-1] for leaf in graph.trace.leaves(given) if leaf.names), "")
            alike = [n for n, (one, *_) in enumerate(groups) if one.shape == tensor.shape]
            at = next((n for n in alike if torch.equal(groups[n][0], tensor)), None)
            if at is None:
                groups.append((tensor, name, (number,)))
            else:
                groups[at] = (tensor, groups[at][1] or name, (*groups[at][2], number))
    yield from ((name, places) for _, name, places in groups if len(places) > 1)


def random_factors(graph: Graph) -> tuple[tuple[str, int], ...]:
    """Finds where data is multiplied, or masked, with numbers that the pass drew, and the results
    depend on it: the module and the value's number.
    """
    drawn: set[int] = set()
    found: list[tuple[str, int]] = []
    for value in graph.values:
        if value.op not in _DRAWN and drawn.isdisjoint(value.inputs):
            continue
        # A product with a drawn matrix is a projection, such as that of hashing.
        multiplies = value.op in ("mul", "div", "where", "masked_fill", "native_dropout")
        if not value.is_data:
            drawn.add(value.number)
        elif multiplies and any(
            graph.depends(result, value.number) for result in graph.trace.results
        ):
            found.append((value.module, value.number))
    return tuple(found)


def writers(graph: Graph) -> tuple[tuple[str, int], ...]:
    """Finds where data is changed in place, but for sums such as those of a branch into its stream:
    the innermost module that runs, and the number of the changed value.
    """
    made = [value for value in graph.values if value.modules and value.is_data]
    schemas = [
        (value, schema) for value in made if (schema := getattr(value.function, "_schema", None))
    ]
    sums = ("aten::add_", "aten::copy_")
    return tuple(
        (v.module, v.number)
        for v, schema in schemas
        if schema.is_mutable and schema.name not in sums
    )


NOTHING = 1e-12
"""A factor up to which nothing is left of a value beside a stream, nor of its gradient; gates that
train start at 1e-6 or above."""
IN_CODE = "a number in the code"


def shut_by(graph: Graph, branch: Branch, found: RecordedPlace) -> tuple[str, ...]:
    """Names of buffers by which what a branch adds does not depend on the model's input, or
    `IN_CODE`; empty where it does, or where a trained number may open it.
    """
    sources = {found.stream, *branch.memory}
    between = sorted(
        {n for source in sources for n in graph.between(source, found.addend)} - sources
    )
    zero: set[int] = set()
    fixed: set[int] = set()
    killed: dict[str, None] = {}
    for number in between:
        value = graph.values[number]
        names = _multiplied_by_nothing(graph, value)
        killed |= dict.fromkeys(names)
        if names or _stays_zero(graph, value, zero):
            zero.add(number)
        if number in zero or all(n in fixed for n in graph.predecessors[number]):
            fixed.add(number)
    if found.addend in fixed:
        return tuple(killed)
    # What multiplies the addend before it is added.
    at, names = found.addend, ()
    while (
        not names
        and len(after := [n for n in graph.consumers[at] if graph.depends(found.sum, n)]) == 1
    ):
        (at,) = after
        names = _multiplied_by_nothing(graph, graph.values[at]) if at < found.sum else ()
    return names


def _multiplied_by_nothing(graph: Graph, value: TracedValue) -> tuple[str, ...]:
    if (
        value.op not in ("mul", "div")
        or len(value.args) != 2
        or len(graph.predecessors[value.number]) != 1
    ):
        return ()
    given = [graph.values[n] for n in value.inputs if not graph.values[n].is_data]
    if not given:
        (number,) = [arg for arg in value.args if isinstance(arg, int | float)] or [1.0]
        factor = abs(float(number)) if value.op == "mul" else 1 / abs(float(number) or 1.0)
        return (IN_CODE,) if factor <= NOTHING else ()
    tensor = given[0].tensor.detach()
    if len(given) > 1 or given[0].origin >= Origin.TRAINABLE or not tensor.numel():
        return ()
    # Neither masks of true and false nor numbers of 8 bits have an absolute value.
    sizes = tensor.abs() if tensor.is_complex() else tensor.float().abs()
    largest = float(sizes.max() if value.op == "mul" else 1 / sizes.min())
    if not largest <= NOTHING:
        return ()
    leaves = [leaf for leaf in graph.trace.leaves(given[0].number) if leaf.origin == Origin.BUFFER]
    return tuple(leaf.names[-1] for leaf in leaves) or (IN_CODE,)


def _stays_zero(graph: Graph, value: TracedValue, zero: set[int]) -> bool:
    """Tells whether a value is 0 because one of its factors is, and nothing is added."""
    before = graph.predecessors[value.number]
    if value.op in PRODUCTS:
        factors = graph.factors(value)
        return not zero.isdisjoint(factors) and set(value.inputs) <= set(factors)
    if value.op == "mul":
        return not zero.isdisjoint(before)
    return value.op in REARRANGING and zero.issuperset(before)


_MULTIPLYING = frozenset({"mul", "addcmul"})


def gates_of(graph: Graph, branch: Branch, found: RecordedPlace) -> tuple[str, ...]:
    """Returns the names of the parameters that make what a branch's output is multiplied with
    before it is added, whatever is made of them first: 1 + w is a gate too.

    Empty where no product in between has any.
    """
    after = graph.between(branch.output, found.sum)[1:]
    products = [value for n in after if (value := graph.values[n]).op in _MULTIPLYING]
    factors = [n for value in products for n in value.inputs if not graph.values[n].is_data]
    return tuple(dict.fromkeys(name for n in factors for name in graph.parameters(n)))
