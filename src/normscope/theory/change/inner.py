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
    """Holds a change at the outputs of a first matrix."""

    coefficients: Tokens
    """The multiple of the gradients there."""
    rest: Tokens
    """An entry's square and two tokens' product, of what has no covariance with gradients."""
    sign: float = 0.0
    """So much times the response to the gradients' sign (`signs.py`), which no linear guess is as
    good as where an activation lets only some tokens through."""
    scatter: float = 0.0
    """And the variance of what single inputs add to that, for independent responses. Both for
    inputs of variance 1 where all tokens are alike, and else for inputs as they are."""

    def plus(self, other: "InnerChange") -> "InnerChange":
        """Returns the sum of two changes whose rests are independent. Equation T20."""
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
    """Returns what the matrix's own update moves at its outputs. Equation T19."""
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
    """Returns what moves at F's output of what moves at a projection of attention, through the
    mixing and the last matrix.

    What lies along the gradient comes out along the gradient; through a last matrix that is drawn,
    its square comes out afresh as well.

    last_is_drawn: False where the identity stands for the last matrix. more: what `met` returns.

    Equation T20.
    """
    tokens = projection.length

    def onward(matrix: Tokens) -> Tokens:
        """Returns what the mixing makes of a Gram matrix, or of coefficients. Equation T20."""
        return forward(projection.back, matrix, tokens)

    scatter = onward(moved.rest)
    if last_is_drawn:
        fresh = onward(sandwich(moved.coefficients, gradient.scaled(1 / width), tokens))
        scatter = scatter.plus(fresh.scaled(more))
    return MatrixStep(onward(moved.coefficients), scatter)


def met(applied: Applied, projection: Projection) -> Entry:
    """Returns how much more a change of queries along their gradients moves than fresh vectors of
    that size would; 1 of keys and values.

    A query's gradient is made of the very keys that it meets: Σ_j w_j ⟨k_j, k⟩ … times the width of
    a head instead of 1. To a logit queries and keys both add their own gradient times the square of
    the matrix they meet, twice the same, which is counted with queries. Σ w⁴ over the keys says how
    few of them hold the weight.

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
    """Returns what moves at F's output of what moves at a first matrix of a feed-forward, through
    the activation and the last matrix.

    What a token's gradient has moved passes the very slopes that the gradient came through, which
    is why second moments of slopes alone do not do.

    gradients: at F's output, and at the outputs of this matrix.

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
    # What a square at W₁'s outputs has at F's output: the gain of W₂, and the slopes' mean square.
    back = back_map.one_one
    # E‖g‖² at one output of the matrix.
    entry = below.one / fan_out
    size = math.sqrt(entry)
    # The change is `apart` g_s + `every` Σ_t g_t.
    every = moved.coefficients.two
    apart = moved.coefficients.one - every
    gram: Tokens = found.own.scaled(apart * apart * entry)
    gram = gram.plus(found.all_, every * every * entry)
    gram = gram.plus(found.own_with_all, apart * every * entry)
    coefficients = forward(back_map, moved.coefficients, tokens)
    if moved.sign:
        # And `sign` times the response to the gradients' sign.
        gram = gram.plus(found.sign, moved.sign**2)
        gram = gram.plus(found.sign_with_own, moved.sign * apart * size)
        gram = gram.plus(found.sign_with_all, moved.sign * every * size)
        # Single inputs scatter about their response: E φ'_s φ'_t u_s u_t less the response's own.
        correlation = inputs.two / inputs.one
        single = Alike(found.slope.one, found.slope.two * correlation)
        gram = gram.plus(single.plus(found.sign, -1.0), moved.scatter)
        # What of the response goes along the gradients above, which go on along F's output.
        of_gradients = Alike(1.0, above.two / above.one)
        guess = solved(of_gradients, found.sign_with_gradient, tokens)
        coefficients = coefficients.plus(guess, back * moved.sign / size)
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
    """Returns the same with slopes as they are, place by place. Equations T17 and T20."""
    above = whole(gradients[0], projection.length)
    inputs = whole_of(projection.inputs)
    # Pre-activations have the inputs' correlations, and variances of their own.
    size = np.sqrt(np.diag(inputs))
    gain = np.sqrt(made.variance) / size
    z = inputs * np.outer(gain, gain)
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
    """Returns the means over slopes that a projection's change is made of. Equation T20."""
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
