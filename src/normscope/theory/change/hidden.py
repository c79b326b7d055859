"""Changes on their way through F: from the outputs of its first matrices to what F gives."""

import math
from typing import NamedTuple

from ..kernels import Activation
from ..products import Linear
from ..sublayers import Map, Projection
from .nodes import rounded
from .rules import Matrix, Rule, Step, first_step
from .signs import Slopes, slopes
from .tokens import NONE, Alike, alike, forward, mapped, sandwich, solved


class Inner(NamedTuple):
    """What moves at the outputs of a first matrix."""

    coefficients: Alike
    """Of the gradients there."""
    rest: Alike
    """An entry's square and two tokens' product, of what has no covariance with gradients."""
    sign: float = 0.0
    """So much times the response to the gradients' sign (`signs.py`), which no linear guess is as good as where an
    activation lets only some tokens through."""
    scatter: float = 0.0
    """And the variance of what single inputs add to that, for inputs of variance 1 and independent responses."""

    def plus(self, other: "Inner") -> "Inner":
        return Inner(
            self.coefficients.plus(other.coefficients),
            self.rest.plus(other.rest),
            self.sign + other.sign,
            self.scatter + other.scatter,
        )


UNMOVED = Inner(NONE, NONE)


def own(rule: Rule, projection: Projection, gradient: Alike, fan_in: int, fan_out: int, *, activated: bool) -> Inner:
    """What the matrix's own update moves."""
    inputs = alike(projection.inputs)
    if rule == "sign" and activated:
        return Inner(NONE, NONE, fan_in * math.sqrt(inputs.one), fan_in * inputs.one) if gradient.one > 0 else UNMOVED
    step = first_step(rule, Matrix(inputs, gradient, fan_in, fan_out), projection.tokens)
    return Inner(step.coefficients, step.rest)


def through_matrix(projection: Projection, coefficients: Alike, gram: Alike) -> Inner:
    """What a moved input moves: the matrix is random but for what it has made of gradients on their way back.

    coefficients: of the gradients at the input. gram: of the whole change there.
    """
    return Inner(coefficients.scaled(projection.onward), gram.scaled(projection.onward))


def attended(projection: Projection, moved: Inner, gradient: Alike, width: int, *, last_is_drawn: bool) -> Step:
    """Through attention's mixing and its last matrix.

    last_is_drawn: False where the identity stands for the last matrix, and adds no randomness of its own.
    """
    onward = forward(projection.back, projection.tokens)
    scatter = mapped(onward, moved.rest)
    if last_is_drawn:
        scatter = scatter.plus(
            mapped(onward, sandwich(moved.coefficients, gradient.scaled(1 / width), projection.tokens))
        )
    return Step(mapped(onward, moved.coefficients), scatter)


def activated(
    projection: Projection,
    moved: Inner,
    made: Map,
    gradients: tuple[Alike, Alike],
    fan_out: int,
    activation: Activation,
) -> Step:
    """Through the activation and the last matrix.

    gradients: at F's output, and at the outputs of this matrix.

    What a token's gradient has moved passes the very slopes that the gradient came through, which is why second moments
    of slopes alone do not do.
    """
    above, below = gradients
    if below.one <= 0 or not (moved.sign or any(moved.coefficients)):
        return Step(NONE, mapped(forward(projection.back, projection.tokens), moved.rest))
    tokens, inputs = projection.tokens, alike(projection.inputs)
    found = _slopes(projection, made, above, activation)
    back = projection.back.one_one
    entry = below.one / fan_out
    apart, every = moved.coefficients.one - moved.coefficients.two, moved.coefficients.two
    gram = found.own.scaled(apart * apart * entry).plus(found.all_, every * every * entry)
    gram = gram.plus(found.own_with_all, apart * every * entry)
    coefficients = mapped(forward(projection.back, tokens), moved.coefficients)
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
    slope_two = projection.back.two_two
    rest = mapped(Linear(back, 0.0, 0.0, slope_two, 0.0), moved.rest)
    return Step(coefficients, rest.plus(gram, back))


def _slopes(projection: Projection, made: Map, above: Alike, activation: Activation) -> Slopes:
    inputs = alike(projection.inputs)
    # ReLU's slopes do not depend on the size of what it reads.
    variance = 1.0 if activation == "relu" else float(f"{made.variance:.3g}")
    return slopes(
        projection.tokens,
        activation,
        projection.name == "ffn_gate",
        variance,
        rounded(inputs.two / inputs.one),
        rounded(above.two / above.one),
    )
