"""The change of one update, carried forward through a stack with the coefficients that carried its values.

To first order every value's change is a sum over the sub-layers below it, with the coefficients that the value has of
their outputs. The change of a sub-layer's output is made of its own matrices' steps and of what F makes of the change
at its input. Neither is independent of the matrices above: a step is made of gradients, which came down through those.
So a change is kept in two parts. Each output's change is a multiple of the gradient there (of all tokens', `Alike`),
and a rest, which is independent of everything above. A matrix W that has made h = Wᵀg of a gradient g is, given that,
g hᵀ / ‖h‖²·(‖h‖²/‖g‖²) and otherwise drawn anew: it turns h into g times its gain, and the whole change into fresh
randomness as large as its mean square gain says.

`InnerChange` is the change inside F: at the outputs of its first matrices, on its way to what F gives.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..backward import Arrived, StackGradients
from ..kernels import Activation, Array
from ..mixing import LinearMap, Products
from ..moments import Moments
from ..stream import Applied, MomentStack
from ..sublayers import Map, Projection
from .rules import STILL, Hidden, MatrixStep, UpdatedMatrix, UpdateRule, first_step, learnt_steps, square_of, together
from .signs import NONE, Alike, Slopes, alike, forward, mapped, of_values, rounded, sandwich, slopes, solved


class InnerChange(NamedTuple):
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

    def plus(self, other: "InnerChange") -> "InnerChange":
        return InnerChange(
            self.coefficients.plus(other.coefficients),
            self.rest.plus(other.rest),
            self.sign + other.sign,
            self.scatter + other.scatter,
        )


UNMOVED = InnerChange(NONE, NONE)


def own(
    rule: UpdateRule, projection: Projection, gradient: Alike, fan_in: int, fan_out: int, *, activated: bool
) -> InnerChange:
    """What the matrix's own update moves."""
    inputs = alike(projection.inputs)
    if rule == "sign" and activated:
        return (
            InnerChange(NONE, NONE, fan_in * math.sqrt(inputs.one), fan_in * inputs.one)
            if gradient.one > 0
            else UNMOVED
        )
    step = first_step(rule, UpdatedMatrix(inputs, gradient, fan_in, fan_out), projection.tokens)
    return InnerChange(step.coefficients, step.rest)


def through_matrix(projection: Projection, coefficients: Alike, gram: Alike) -> InnerChange:
    """What a moved input moves: the matrix is random but for what it has made of gradients on their way back.

    coefficients: of the gradients at the input. gram: of the whole change there.
    """
    return InnerChange(coefficients.scaled(projection.onward), gram.scaled(projection.onward))


def attended(
    projection: Projection, moved: InnerChange, gradient: Alike, width: int, *, last_is_drawn: bool
) -> MatrixStep:
    """Through attention's mixing and its last matrix.

    last_is_drawn: False where the identity stands for the last matrix, and adds no randomness of its own.
    """
    onward = forward(projection.back, projection.tokens)
    scatter = mapped(onward, moved.rest)
    if last_is_drawn:
        scatter = scatter.plus(
            mapped(onward, sandwich(moved.coefficients, gradient.scaled(1 / width), projection.tokens))
        )
    return MatrixStep(mapped(onward, moved.coefficients), scatter)


def activated(
    projection: Projection,
    moved: InnerChange,
    made: Map,
    gradients: tuple[Alike, Alike],
    fan_out: int,
    activation: Activation,
) -> MatrixStep:
    """Through the activation and the last matrix.

    gradients: at F's output, and at the outputs of this matrix.

    What a token's gradient has moved passes the very slopes that the gradient came through, which is why second moments
    of slopes alone do not do.
    """
    above, below = gradients
    if below.one <= 0 or not (moved.sign or any(moved.coefficients)):
        return MatrixStep(NONE, mapped(forward(projection.back, projection.tokens), moved.rest))
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
    rest = mapped(LinearMap(back, 0.0, 0.0, slope_two, 0.0), moved.rest)
    return MatrixStep(coefficients, rest.plus(gram, back))


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


@dataclass(frozen=True, slots=True)
class _SublayerChange:
    """A sub-layer's output after an update at a rate of 1: Gram matrices of its change over tokens."""

    own: Alike
    """By its own matrices, its input as it was."""
    amplified: Alike
    """What it makes of the change at its input."""
    total: Alike


class Carried:
    """Changes of all parts of a stack's values, sub-layer after sub-layer."""

    def __init__(
        self,
        stack: MomentStack,
        gradients: StackGradients,
        at_output: Products,
        rule: UpdateRule,
        *,
        last_is_drawn: bool,
    ) -> None:
        self.stack, self.rule, self.last_is_drawn = stack, rule, last_is_drawn
        self.tokens, self.width = stack.setting.tokens, stack.atoms.width
        reads = [*(applied.input for applied in stack.applied), stack.output]
        arrived = [*(alike(one.input) for one in gradients.arrived), alike(at_output)]
        self._back = np.zeros((len(reads), stack.atoms.count))
        for row, read in zip(self._back, reads, strict=True):
            row[: read.size] = read.gradient_coefficients
        # Of what all tokens share, and of what they do not: changes of either kind stay so.
        self._sizes = np.array([gradient.values(self.tokens) for gradient in arrived])
        self._coefficients = np.zeros((stack.atoms.count, 2))
        self._rests = np.zeros((stack.atoms.count, 2))
        self.learnt = self._learnt(gradients)
        self.moved = [
            self._move(number, applied, at)
            for number, (applied, at) in enumerate(zip(stack.applied, gradients.arrived, strict=True))
        ]

    def gram(self, value: Moments) -> Alike:
        """E⟨δx_s, δx_t⟩ / d of a value of the stack, once every sub-layer below it has moved."""
        row = _change_coefficients(value)
        return self._gram(row, self._by_gradient(row))

    def downhill(self, g: Alike) -> float:
        """-Σ_t E⟨g_t, δy_t⟩ over all tokens: how much the loss falls, to first order. g: at the output."""
        shared, apart = self._by_gradient(_change_coefficients(self.stack.output))[-1]
        g_shared, g_apart = g.values(self.tokens)
        return float(g_shared * shared + (self.tokens - 1) * g_apart * apart)

    def _by_gradient(self, row: Array) -> Array:
        """(inputs, 2): the coefficients of the gradients at all inputs, which are independent of one another."""
        size = len(row)
        by_gradient: Array = self._back[:, :size] @ (row[:, None] * self._coefficients[:size])
        return by_gradient

    def _gram(self, row: Array, by_gradient: Array) -> Alike:
        shared, apart = (by_gradient**2 * self._sizes).sum(0) / self.width
        one, two = row**2 @ self._rests[: len(row)]
        return of_values(float(shared), float(apart), self.tokens).plus(Alike(float(one), float(two)))

    def _learnt(self, gradients: StackGradients) -> list[MatrixStep]:
        uses = self.stack.atoms.learnt
        steps = learnt_steps(self.rule, uses, gradients.learnt, self.width, self.tokens)
        for use, step in zip(uses, steps, strict=True):
            self._put(use.atom, step)
        return steps

    def _put(self, atom: int, step: MatrixStep) -> None:
        self._coefficients[atom] = step.coefficients.values(self.tokens)
        self._rests[atom] = step.rest

    def _move(self, number: int, applied: Applied, at: Arrived) -> _SublayerChange:
        row = _change_coefficients(applied.input)
        by_gradient = self._by_gradient(row)
        gram = self._gram(row, by_gradient)
        if applied.input.normed:
            # A norm takes off what lies along its input, and LayerNorm the mean: of what is random, a d-th each.
            gram = gram.scaled(1 - 2 / self.stack.atoms.scatter_width)
        shared, apart = by_gradient[number]
        at_input = of_values(float(shared), float(apart), self.tokens)
        owns, brought = self._owns(applied, at), self._brought(applied, at_input, gram)
        last = self._last(applied, at)
        both = [one.plus(other) for one, other in zip(owns, brought, strict=True)]
        total = together(self._through(applied, at, both), last)
        self._put(applied.atom, total)
        g = alike(at.output)

        def square(step: MatrixStep) -> Alike:
            return square_of(step, g, self.width, self.tokens)

        return _SublayerChange(
            own=square(together(self._through(applied, at, owns), last)),
            amplified=square(self._through(applied, at, brought)),
            total=square(total),
        )

    def _owns(self, applied: Applied, at: Arrived) -> list[InnerChange]:
        activates = applied.site.kind == "feed_forward"
        return [
            own(self.rule, projection, alike(g), self.width, self._outputs(applied), activated=activates)
            for projection, g in zip(applied.map.projections, at.projections, strict=True)
        ]

    def _brought(self, applied: Applied, coefficients: Alike, gram: Alike) -> list[InnerChange]:
        return [through_matrix(projection, coefficients, gram) for projection in applied.map.projections]

    def _last(self, applied: Applied, at: Arrived) -> MatrixStep:
        """The step of F's last matrix."""
        made, kind = applied.map, applied.site.kind
        if kind != "feed_forward" and not self.last_is_drawn:
            return STILL
        hidden, inputs = None, alike(made.last_inputs)
        if kind == "feed_forward":
            x = applied.input
            hidden = Hidden(self.stack.setting.activation, made.variance, x.p / x.q, made.last_mean / inputs.one**0.5)
        return first_step(
            self.rule, UpdatedMatrix(inputs, alike(at.output), made.last_width, self.width, hidden), self.tokens
        )

    def _through(self, applied: Applied, at: Arrived, moved: list[InnerChange]) -> MatrixStep:
        """To F's output."""
        total, outputs = STILL, self._outputs(applied)
        for projection, one, g in zip(applied.map.projections, moved, at.projections, strict=True):
            if one == UNMOVED:
                continue
            if applied.site.kind == "feed_forward":
                gradients = (alike(at.output), alike(g))
                step = activated(projection, one, applied.map, gradients, outputs, self.stack.setting.activation)
            else:
                step = attended(projection, one, alike(g), outputs, last_is_drawn=self.last_is_drawn)
            total = together(total, step)
        return total

    def _outputs(self, applied: Applied) -> int:
        """Of F's first matrices."""
        return applied.site.stack.ffn_width if applied.site.kind == "feed_forward" else self.width


def _change_coefficients(x: Moments) -> Array:
    """Of a value's change: those of gradients, since a norm divides both by the size that was drawn.

    What no gradient passes, a change does pass.
    """
    back = x.gradient_coefficients
    if back.all():
        return back
    chosen: Array = np.where(back != 0, back, x.coefficients)
    return chosen
