"""The change inside F: at the outputs of its first matrices, on its way to what F gives.

The equation is T20 of docs/theory.md.
"""

import math
from typing import NamedTuple

import numpy as np

from ..kernels import Activation
from ..mixing import Entry, LinearMap
from ..places import Factors, whole_of
from ..stream import Applied
from ..sublayers import Map, Projection
from .rules import MatrixStep, UpdatedMatrix, UpdateRule, first_step
from .signs import Slopes, rounded, slope_squares, slopes, through_units
from .tokens import NONE, Alike, Tokens, Whole, forward, over_tokens, sandwich, solved, whole

_VARIANCE_OF_ALL_WEIGHT = 9
"""The variance of logits that adds 1 to Σ w⁴ / (Σ w²)², which is one over the keys without logits:
fitted on random logits over 4 to 64 keys. Equation T20.
"""
_LEAST_GAP = 1e-9
"""A share of a token's square: below it tokens do not differ but for rounding."""


class InnerChange(NamedTuple):
    """A change at the outputs of a first matrix."""

    coefficients: Tokens
    """Of the gradients there."""
    rest: Tokens
    """An entry's square and two tokens' product, of what has no covariance with gradients."""
    sign: float = 0.0
    """So much times the response to the gradients' sign (`signs.py`), which no linear guess is as
    good as where an activation lets only some tokens through."""
    scatter: float = 0.0
    """And the variance of what single inputs add to that, for independent responses. Both for
    inputs of variance 1 where all tokens are alike, and else for inputs as they are."""

    def plus(self, other: "InnerChange") -> "InnerChange":
        return InnerChange(
            self.coefficients.plus(other.coefficients),
            self.rest.plus(other.rest),
            self.sign + other.sign,
            self.scatter + other.scatter,
        )


UNMOVED = InnerChange(NONE, NONE)


def own(
    rule: UpdateRule,
    projection: Projection,
    gradient: Tokens,
    fan_in: int,
    fan_out: int,
    *,
    activated: bool,
) -> InnerChange:
    """Returns what the matrix's own update moves."""
    inputs = over_tokens(projection.inputs)
    if rule == "sign" and activated:
        if gradient.one <= 0:
            return UNMOVED
        square = 1.0 if isinstance(inputs, Whole) else inputs.one
        return InnerChange(NONE, NONE, fan_in * math.sqrt(square), fan_in * square)
    step = first_step(rule, UpdatedMatrix(inputs, gradient, fan_in, fan_out), projection.length)
    return InnerChange(step.coefficients, step.rest)


def attended(
    projection: Projection,
    moved: InnerChange,
    gradient: Tokens,
    width: int,
    *,
    last_is_drawn: bool,
    more: Entry,
) -> MatrixStep:
    """Through attention's mixing and its last matrix.

    more: what `met` says. last_is_drawn: False where the identity stands for the last matrix, and
    scatters nothing.

    Equation T20.
    """
    tokens = projection.length

    def onward(matrix: Tokens) -> Tokens:
        return forward(projection.back, matrix, tokens)

    scatter = onward(moved.rest)
    if last_is_drawn:
        fresh = onward(sandwich(moved.coefficients, gradient.scaled(1 / width), tokens))
        scatter = scatter.plus(fresh.scaled(more))
    return MatrixStep(onward(moved.coefficients), scatter)


def met(applied: Applied, projection: Projection) -> Entry:
    """Returns how much more what moves along gradients scatters than as many fresh vectors would.

    A query's gradient is made of the very keys that it meets, and a key's of the queries. To a
    logit both add its own gradient times the other's square: twice the same, which is counted with
    queries. Σ w⁴ over the keys says how few of them hold the weight.

    Equation T20.
    """
    if projection.name != "query":
        return 1.0
    one, two, _ = applied.input.mean
    places = applied.input.atoms.places
    keys = projection.length if places is None else places.keys
    fourth_powers = 1 / keys + applied.map.variance / _VARIANCE_OF_ALL_WEIGHT
    # Keys differ from their mean in the gap alone, and queries meet them as they are.
    gap = max(one - two, _LEAST_GAP * one)
    twice = 1 + one / gap
    more = 1 + applied.site.stack.width_of_head * twice**2 * fourth_powers
    return more if places is None else np.maximum.outer(more, more)


def activated(
    projection: Projection,
    moved: InnerChange,
    made: Map,
    gradients: tuple[Tokens, Tokens],
    fan_out: int,
    activation: Activation,
) -> MatrixStep:
    """Through the activation and the last matrix.

    gradients: at F's output, and at the outputs of this matrix.

    What a token's gradient has moved passes the very slopes that the gradient came through, which
    is why second moments of slopes alone do not do.

    Equation T20.
    """
    above, below = gradients
    tokens = projection.length
    inputs = over_tokens(projection.inputs)
    back_map = projection.back
    if below.one <= 0 or not (moved.sign or np.any(whole(moved.coefficients, tokens))):
        return MatrixStep(NONE, forward(back_map, moved.rest, tokens))
    if isinstance(back_map, Factors):
        return _activated_by_place(
            projection, back_map, moved, made, gradients, fan_out, activation
        )
    assert isinstance(back_map, LinearMap)
    found = _slopes(projection, made, above, activation)
    back = back_map.one_one
    entry = below.one / fan_out
    apart, every = moved.coefficients.one - moved.coefficients.two, moved.coefficients.two
    gram = found.own.scaled(apart * apart * entry).plus(found.all_, every * every * entry)
    gram = gram.plus(found.own_with_all, apart * every * entry)
    coefficients = forward(back_map, moved.coefficients, tokens)
    if moved.sign:
        gram = gram.plus(found.sign, moved.sign**2)
        gram = gram.plus(found.sign_with_own, moved.sign * apart * math.sqrt(entry))
        gram = gram.plus(found.sign_with_all, moved.sign * every * math.sqrt(entry))
        correlation = inputs.two / inputs.one
        single = Alike(found.slope.one, found.slope.two * correlation)
        gram = gram.plus(single.plus(found.sign, -1.0), moved.scatter)
        of_gradients = Alike(1.0, above.two / above.one)
        guess = solved(of_gradients, found.sign_with_gradient, tokens)
        coefficients = coefficients.plus(guess, back * moved.sign / math.sqrt(entry))
    return MatrixStep(coefficients, forward(back_map, moved.rest, tokens).plus(gram, back))


def _activated_by_place(
    projection: Projection,
    back: Factors,
    moved: InnerChange,
    made: Map,
    gradients: tuple[Tokens, Tokens],
    fan_out: int,
    activation: Activation,
) -> MatrixStep:
    """The same with slopes as they are, place by place."""
    above = whole(gradients[0], projection.length)
    inputs = whole_of(projection.inputs)
    size = np.sqrt(np.diag(inputs))
    z = inputs * np.outer(np.sqrt(made.variance) / size, np.sqrt(made.variance) / size)
    # Between the slopes and F's output is the last matrix: gradients above the slopes are so many
    # times those there.
    slopes = slope_squares(activation, gate=projection.name == "ffn_gate", z=z)
    last = back.one / slopes
    lengths = np.sqrt(last / fan_out)
    found = through_units(
        activation,
        gate=projection.name == "ffn_gate",
        z=z,
        gradients=above * np.outer(lengths, lengths),
        inputs=inputs,
        coefficients=whole(moved.coefficients, projection.length),
        sign=moved.sign,
    )
    factors = np.sqrt(np.outer(last, last))
    tokens = projection.length
    guess = solved(Whole(above * np.outer(lengths, lengths)), found.with_gradient, tokens)
    coefficients = forward(back, moved.coefficients, tokens).plus(
        Whole(whole(guess, tokens) * factors)
    )
    gram = found.gram.plus(found.single, moved.scatter)
    return MatrixStep(
        coefficients, forward(back, moved.rest, tokens).plus(Whole(gram.matrix * factors))
    )


def _slopes(projection: Projection, made: Map, above: Tokens, activation: Activation) -> Slopes:
    inputs = over_tokens(projection.inputs)
    # ReLU's slopes do not depend on the size of what it reads.
    variance = 1.0 if activation == "relu" else float(f"{made.variance:.3g}")
    return slopes(
        projection.length,
        activation,
        projection.name == "ffn_gate",
        variance,
        rounded(inputs.two / inputs.one),
        rounded(above.two / above.one),
    )
