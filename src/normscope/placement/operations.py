"""Operations of formulas that no operator of Python writes. Every reader registers its own kind of
value: symbols here.

A *number of a token* is what `connect` gives: a stream times it is scaled for every token on its
own. Numbers of every kind (constants, parameters, those of a token) are added, multiplied and
raised to powers with Python's operators.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial, singledispatch
from typing import Any

from .base import Value
from .symbol import Symbol, number

Number = Any
"""A factor of a value: a float, a parameter, or a number of a token."""


def _nobody(operation: str, value: object) -> TypeError:
    return TypeError(f"no reader has registered {operation} for {type(value).__name__}")


@singledispatch
def mix(
    query: Value,
    values: Sequence[Value],
    key: Callable[[Value], Value],
    value: Callable[[Value], Value] | None = None,
) -> Value:
    """Attention over depth: Σ_i softmax_i(query · key(v_i)) value(v_i), for every token on its own.

    query: a parameter of the stack's width. value: without it the values as they are. Dispatches on
    the query; raises TypeError for a kind of value nobody registered.
    """
    raise _nobody("attention over depth", query)


@singledispatch
def unit(x: Value) -> Value:
    """x / ‖x‖ along the last dimension. Raises TypeError for a kind of value nobody registered."""
    raise _nobody("unit vectors", x)


@singledispatch
def sigmoid(number: Number) -> Number:
    """σ(number) = 1 / (1 + exp(-number)). Raises TypeError for a kind of number nobody
    registered.
    """
    raise _nobody("sigmoid", number)


@singledispatch
def tanh(number: Number) -> Number:
    """tanh(number). Raises TypeError for a kind of number nobody registered."""
    raise _nobody("tanh", number)


@singledispatch
def silu(number: Number) -> Number:
    """number · σ(number). Raises TypeError for a kind of number nobody registered."""
    raise _nobody("silu", number)


@singledispatch
def softplus(number: Number) -> Number:
    """ln(1 + exp(number)). Raises TypeError for a kind of number nobody registered."""
    raise _nobody("softplus", number)


@singledispatch
def at_most_1(number: Number) -> Number:
    """min(1, number). Raises TypeError for a kind of number nobody registered."""
    raise _nobody("a number of at most 1", number)


@singledispatch
def stopped(x: Value) -> Value:
    """x as a constant: no gradient passes it. Raises TypeError for a kind of value nobody
    registered.
    """
    raise _nobody("a stopped gradient", x)


@singledispatch
def by_head(x: Value, numbers: Value) -> Value:
    """x with each of its equal parts, the heads, times a number of its own: as many as `numbers`
    has entries.

    Raises TypeError for a kind of value nobody registered.
    """
    raise _nobody("numbers for every head", x)


@singledispatch
def joined(x: Value, *others: Value, epsilon: float = 1e-6) -> Value:
    """(x, *others) / √(mean square + epsilon): streams side by side, over the RMS of all of their
    features.

    Raises TypeError for a kind of value nobody registered.
    """
    raise _nobody("joined streams", x)


@singledispatch
def beside(x: Value, *others: Value) -> Value:
    """(x, *others): values side by side, as wide as all of them. Raises TypeError for a kind nobody
    registered.
    """
    raise _nobody("values side by side", x)


@singledispatch
def connect(
    x: Value, weight: Value, bias: Value = 0.0, scale: Number = 1.0, *, name: str = ""
) -> tuple[Number, ...]:
    """Numbers for every token, computed from its x: scale · (weight x) + bias, one for each row of
    `weight`.

    weight: a parameter (rows, width of x); of shape (rows, features, width of x), what comes of a
    row has a number for each feature. bias: one (rows,). name: what they are printed under, without
    it the weight's name without a `_weight` at its end. Raises TypeError for a kind of value nobody
    registered.
    """
    raise _nobody("numbers of a token", x)


def weighed(weights: Sequence[Number], values: Sequence[Value]) -> Value:
    """Σ_i weights_i · values_i, with weights of any kind."""
    return weighed_sum(values[0], tuple(values), tuple(weights))


@singledispatch
def weighed_sum(first: Value, values: tuple[Value, ...], weights: tuple[Number, ...]) -> Value:
    """`weighed` of one kind of value: what operators compute, unless its reader has a way of its
    own.
    """
    total = weights[0] * first
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = total + weight * value
    return total


def doubly_stochastic(
    logits: Sequence[Number], *, rounds: int = 20, epsilon: float = 0.0
) -> tuple[tuple[Number, ...], ...]:
    """Returns a square matrix of numbers whose rows and columns sum to 1, from its logits row after
    row.

    The softmax of each row, then by turns columns and rows divided by their sums (Sinkhorn and
    Knopp), `rounds` times columns, so that columns sum to 1 exactly and rows all but so. epsilon:
    added to the softmax and to every sum. Raises ValueError where there are not n² logits, or where
    `rounds` is not positive.
    """
    size = round(len(logits) ** 0.5)
    if size * size != len(logits) or not logits or rounds < 1:
        raise ValueError(
            f"a doubly stochastic matrix takes n² logits and a round or more, got {len(logits)}, "
            f"{rounds}"
        )
    return sinkhorn(logits[0], tuple(logits), rounds, epsilon)


@singledispatch
def sinkhorn(
    first: Number, logits: tuple[Number, ...], rounds: int, epsilon: float
) -> tuple[tuple[Number, ...], ...]:
    """`doubly_stochastic` of one kind of logit. Raises TypeError for a kind that nobody
    registered.
    """
    raise _nobody("doubly stochastic matrices", first)


# What they do to symbols, and to constants.


@mix.register
def _mix(
    query: Symbol,
    values: Sequence[Symbol],
    key: Callable[[Symbol], Symbol],
    value: Callable[[Symbol], Symbol] | None = None,
) -> Symbol:
    # All keys pass the same norm, and a history is printed under one name.
    whole = (query, key(values[0]), *((value(values[0]),) if value else ()))
    return Symbol("mix", whole, values[0].width, values=tuple(values))


@unit.register
def _unit(x: Symbol) -> Symbol:
    return Symbol("unit", (x,), x.width)


def _curve(name: str, x: Symbol) -> Symbol:
    # Of numbers of a token, the name says what is used: what is done to them stands in their
    # meaning.
    return replace(x, meaning=f"{name}({x.meaning})") if x.meaning else Symbol(name, (x,), x.width)


_CURVES = ((sigmoid, "σ"), (tanh, "tanh"), (silu, "silu"), (softplus, "softplus"))
for _operation, _name in _CURVES:
    _operation.register(Symbol, partial(_curve, _name))


@at_most_1.register
def _at_most_1(x: Symbol) -> Symbol:
    return Symbol("min", (number(1.0), x), x.width)


@by_head.register
def _by_head(x: Symbol, numbers: Symbol) -> Symbol:
    return numbers * x


@stopped.register
def _stopped(x: Symbol) -> Symbol:
    return Symbol("stopped", (x,), x.width)


@joined.register
def _joined(x: Symbol, *others: Symbol, epsilon: float = 1e-6) -> Symbol:
    return Symbol("rms", (x, *others), sum(part.width for part in (x, *others)))


@beside.register
def _beside(x: Symbol, *others: Symbol) -> Symbol:
    return Symbol("beside", (x, *others), sum(part.width for part in (x, *others)))


@connect.register
def _connect(
    x: Symbol,
    weight: Symbol,
    bias: Symbol | float = 0.0,
    scale: Symbol | float = 1.0,
    *,
    name: str = "",
) -> tuple[Symbol, ...]:
    rows, *features, width = weight.shape
    found = x.width or sum(x.shape)
    if width != found:
        raise ValueError(
            f"{weight} has rows of {width} numbers, and what it is multiplied with has {found} "
            "features"
        )
    made = scale * (weight * x) if scale != 1.0 else weight * x
    meaning = str(made + bias if bias != 0.0 else made)
    name = name or weight.op.removesuffix("_weight")
    names = [f"{name}_{row}" for row in range(1, rows + 1)] if rows > 1 else [name]
    return tuple(Symbol(one, shape=tuple(features), meaning=meaning, reads=(x,)) for one in names)


@weighed_sum.register
def _weighed_sum(
    first: Symbol, values: tuple[Symbol, ...], weights: tuple[Symbol | float, ...]
) -> Symbol:
    pairs = zip((w if isinstance(w, Symbol) else number(w) for w in weights), values, strict=True)
    return Symbol("weighed", tuple(symbol for pair in pairs for symbol in pair), first.width)


@sinkhorn.register
def _sinkhorn(
    first: Symbol, logits: tuple[Symbol, ...], rounds: int, epsilon: float
) -> tuple[tuple[Symbol, ...], ...]:
    name = first.shared_name
    meaning = f"doubly_stochastic({first.meaning or first})"
    places = range(1, math.isqrt(len(logits)) + 1)

    def row_of(row: int) -> tuple[Symbol, ...]:
        names = [f"{name}_{row}{column}" for column in places]
        return tuple(Symbol(entry, meaning=meaning, reads=first.reads) for entry in names)

    return tuple(row_of(row) for row in places)


sigmoid.register(float, lambda x: 1 / (1 + math.exp(-x)))
silu.register(float, lambda x: x / (1 + math.exp(-x)))
softplus.register(float, lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0))
tanh.register(float, math.tanh)
at_most_1.register(float, partial(min, 1.0))


@sinkhorn.register
def _sinkhorn_of_constants(
    first: float, logits: tuple[float, ...], rounds: int, epsilon: float
) -> tuple[tuple[float, ...], ...]:
    return _stochastic(tuple(map(float, logits)), rounds, epsilon)


@lru_cache(maxsize=16)
def _stochastic(
    logits: tuple[float, ...], rounds: int, epsilon: float
) -> tuple[tuple[float, ...], ...]:
    """Returns `sinkhorn` of numbers. Every sub-layer of a stack starts from the same ones."""
    size = math.isqrt(len(logits))
    rows = []
    for start in range(0, size * size, size):
        softmax = _divided([math.exp(logit) for logit in logits[start : start + size]], 0.0)
        rows.append([entry + epsilon for entry in softmax])
    # The columns' turn comes first and last, the rows' between two of theirs.
    rows = _columns_divided(rows, epsilon)
    for _ in range(rounds - 1):
        rows = [_divided(row, epsilon) for row in rows]
        rows = _columns_divided(rows, epsilon)
    return tuple(map(tuple, rows))


def _divided(entries: Sequence[float], epsilon: float) -> list[float]:
    """Divides entries by their sum and epsilon."""
    total = math.fsum(entries) + epsilon
    return [entry / total for entry in entries]


def _columns_divided(rows: Sequence[Sequence[float]], epsilon: float) -> list[list[float]]:
    """Divides every column by its sum and epsilon."""
    columns = [_divided(column, epsilon) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]
