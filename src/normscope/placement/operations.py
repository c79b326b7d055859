"""Operations of formulas that no operator of Python writes. Every reader registers its own kind of value.

A *number of a token* is what `connect` gives: a stream times it is scaled for every token on its own. Numbers of every
kind (constants, parameters, those of a token) are added, multiplied and raised to powers with Python's operators.
"""

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

from .base import Value

Number = Any
"""What multiplies a value: a float, a parameter, or a number of a token."""


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

    query: a parameter of the stack's width. value: without it the values as they are. Dispatches on the query; raises
    TypeError for a kind of value nobody registered.
    """
    raise _nobody("attention over depth", query)


@singledispatch
def unit(x: Value) -> Value:
    """x / ‖x‖ along the last dimension. Raises TypeError for a kind of value nobody registered."""
    raise _nobody("unit vectors", x)


@singledispatch
def sigmoid(number: Number) -> Number:
    """σ(number) = 1 / (1 + exp(-number)). Raises TypeError for a kind of number nobody registered."""
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
def stopped(x: Value) -> Value:
    """x as a constant: no gradient passes it. Raises TypeError for a kind of value nobody registered."""
    raise _nobody("a stopped gradient", x)


@singledispatch
def by_head(x: Value, numbers: Value) -> Value:
    """x with each of its equal parts, the heads, times a number of its own: as many as `numbers` has entries.

    Raises TypeError for a kind of value nobody registered.
    """
    raise _nobody("numbers for every head", x)


@singledispatch
def joined(x: Value, *others: Value, epsilon: float = 1e-6) -> Value:
    """(x, *others) / √(mean square + epsilon): streams side by side, over the RMS of all of their features.

    Raises TypeError for a kind of value nobody registered.
    """
    raise _nobody("joined streams", x)


@singledispatch
def beside(x: Value, *others: Value) -> Value:
    """(x, *others): values side by side, as wide as all of them. Raises TypeError for a kind nobody registered."""
    raise _nobody("values side by side", x)


@singledispatch
def connect(x: Value, weight: Value, bias: Value = 0.0, scale: Number = 1.0, *, name: str = "") -> tuple[Number, ...]:
    """Numbers for every token, computed from its x: scale · (weight x) + bias, one for each row of `weight`.

    weight: a parameter (rows, width of x); of shape (rows, features, width of x), what comes of a row has a number for
    each feature. bias: one (rows,). name: what they are printed under, without it the weight's name without a `_weight`
    at its end. Raises TypeError for a kind of value nobody registered.
    """
    raise _nobody("numbers of a token", x)


def weighed(weights: Sequence[Number], values: Sequence[Value]) -> Value:
    """Σ_i weights_i · values_i, with weights of any kind."""
    return weighed_sum(values[0], tuple(values), tuple(weights))


@singledispatch
def weighed_sum(first: Value, values: tuple[Value, ...], weights: tuple[Number, ...]) -> Value:
    """`weighed` of one kind of value: what operators compute, unless its reader has a way of its own."""
    total = weights[0] * first
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = total + weight * value
    return total


def doubly_stochastic(
    logits: Sequence[Number], *, rounds: int = 20, epsilon: float = 0.0
) -> tuple[tuple[Number, ...], ...]:
    """A square matrix of numbers whose rows and columns sum to 1, from its logits row after row.

    The softmax of each row, then by turns columns and rows divided by their sums (Sinkhorn and Knopp), `rounds` times
    columns, so that columns sum to 1 exactly and rows all but so. epsilon: added to the softmax and to every sum.
    Raises ValueError where there are not n² logits, or where `rounds` is not positive.
    """
    size = round(len(logits) ** 0.5)
    if size * size != len(logits) or not logits or rounds < 1:
        raise ValueError(f"a doubly stochastic matrix takes n² logits and a round or more, got {len(logits)}, {rounds}")
    return sinkhorn(logits[0], tuple(logits), rounds, epsilon)


@singledispatch
def sinkhorn(first: Number, logits: tuple[Number, ...], rounds: int, epsilon: float) -> tuple[tuple[Number, ...], ...]:
    """`doubly_stochastic` of one kind of logit. Raises TypeError for a kind that nobody registered."""
    raise _nobody("doubly stochastic matrices", first)
