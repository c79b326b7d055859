"""What the operations of formulas do to symbols, and to constants."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from .operations import beside, by_head, connect, joined, mix, sigmoid, silu, sinkhorn, stopped, tanh, unit, weighed_sum
from .symbol import Symbol, number


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


@sigmoid.register
def _sigmoid(x: Symbol) -> Symbol:
    # Of numbers of a token, the name says what is used: what is done to them stands in their meaning.
    return replace(x, meaning=f"σ({x.meaning})") if x.meaning else Symbol("σ", (x,), x.width)


@tanh.register
def _tanh(x: Symbol) -> Symbol:
    return replace(x, meaning=f"tanh({x.meaning})") if x.meaning else Symbol("tanh", (x,), x.width)


@silu.register
def _silu(x: Symbol) -> Symbol:
    return replace(x, meaning=f"silu({x.meaning})") if x.meaning else Symbol("silu", (x,), x.width)


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
    x: Symbol, weight: Symbol, bias: Symbol | float = 0.0, scale: Symbol | float = 1.0, *, name: str = ""
) -> tuple[Symbol, ...]:
    rows, *features, width = weight.shape
    found = x.width or sum(x.shape)
    if width != found:
        raise ValueError(f"{weight} has rows of {width} numbers, and what it is multiplied with has {found} features")
    made = scale * (weight * x) if scale != 1.0 else weight * x
    meaning = str(made + bias if bias != 0.0 else made)
    name = name or weight.op.removesuffix("_weight")
    names = [f"{name}_{row}" for row in range(1, rows + 1)] if rows > 1 else [name]
    return tuple(Symbol(one, shape=tuple(features), meaning=meaning, reads=(x,)) for one in names)


@weighed_sum.register
def _weighed_sum(first: Symbol, values: tuple[Symbol, ...], weights: tuple[Symbol | float, ...]) -> Symbol:
    pairs = zip((w if isinstance(w, Symbol) else number(w) for w in weights), values, strict=True)
    return Symbol("weighed", tuple(symbol for pair in pairs for symbol in pair), first.width)


@sinkhorn.register
def _sinkhorn(first: Symbol, logits: tuple[Symbol, ...], rounds: int, epsilon: float) -> tuple[tuple[Symbol, ...], ...]:
    size = math.isqrt(len(logits))
    name, meaning = first.shared_name, f"doubly_stochastic({first.meaning or first})"
    return tuple(
        tuple(Symbol(f"{name}_{row}{column}", meaning=meaning, reads=first.reads) for column in range(1, size + 1))
        for row in range(1, size + 1)
    )


@sigmoid.register
def _sigmoid_of_constant(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@silu.register
def _silu_of_constant(x: float) -> float:
    return x / (1 + math.exp(-x))


@tanh.register
def _tanh_of_constant(x: float) -> float:
    return math.tanh(x)


@sinkhorn.register
def _sinkhorn_of_constants(
    first: float, logits: tuple[float, ...], rounds: int, epsilon: float
) -> tuple[tuple[float, ...], ...]:
    return _stochastic(tuple(map(float, logits)), rounds, epsilon)


@lru_cache(maxsize=16)
def _stochastic(logits: tuple[float, ...], rounds: int, epsilon: float) -> tuple[tuple[float, ...], ...]:
    # Every sub-layer of a stack starts from the same.
    size = math.isqrt(len(logits))
    rows = [[math.exp(logit) for logit in logits[row * size : (row + 1) * size]] for row in range(size)]
    rows = [[entry / math.fsum(row) + epsilon for entry in row] for row in rows]
    for turn in range(2 * rounds - 1):
        if turn % 2:
            rows = [[entry / (math.fsum(row) + epsilon) for entry in row] for row in rows]
        else:
            sums = [math.fsum(column) + epsilon for column in zip(*rows, strict=True)]
            rows = [[entry / total for entry, total in zip(row, sums, strict=True)] for row in rows]
    return tuple(map(tuple, rows))
