"""The change of one update, carried forward through a stack with the coefficients that carried its
values.

To first order every value's change is a sum over the sub-layers below it, with the coefficients
that the value has of their outputs. The change of a sub-layer's output is made of its own matrices'
steps and of what F makes of the change at its input. Neither is independent of the matrices above:
a step is made of gradients, which came down through those. So a change is kept in two parts. Each
output's change is a multiple of the gradient there (of all tokens', `Alike`), and a rest, which is
independent of everything above. A matrix W that has made h = Wᵀg of a gradient g is, given that, g
hᵀ / ‖h‖²·(‖h‖²/‖g‖²) and otherwise drawn anew: it turns h into g times its gain, and the whole
change into fresh randomness as large as its mean square gain says.

`_InnerChange` is the change inside F: at the outputs of its first matrices, on its way to what F
gives.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..backward import Arrived, StackGradients
from ..kernels import Activation
from ..mixing import Array, Entry, LinearMap, Products
from ..moments import Moments
from ..places import Factors, whole_of
from ..stream import Applied, MomentStack
from ..sublayers import Map, Projection, correlation
from .rules import (
    STILL,
    Hidden,
    MatrixStep,
    UpdatedMatrix,
    UpdateRule,
    first_step,
    learnt_steps,
    square_of,
    together,
)
from .signs import Slopes, rounded, slope_squares, slopes, through_units
from .tokens import (
    NONE,
    Alike,
    Tokens,
    Whole,
    forward,
    ledger_of,
    over_tokens,
    sandwich,
    solved,
    trace,
    whole,
)


class _InnerChange(NamedTuple):
    """What moves at the outputs of a first matrix."""

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

    def plus(self, other: "_InnerChange") -> "_InnerChange":
        return _InnerChange(
            self.coefficients.plus(other.coefficients),
            self.rest.plus(other.rest),
            self.sign + other.sign,
            self.scatter + other.scatter,
        )


UNMOVED = _InnerChange(NONE, NONE)


def own(
    rule: UpdateRule,
    projection: Projection,
    gradient: Tokens,
    fan_in: int,
    fan_out: int,
    *,
    activated: bool,
) -> _InnerChange:
    """What the matrix's own update moves."""
    inputs = over_tokens(projection.inputs)
    if rule == "sign" and activated:
        square = 1.0 if isinstance(inputs, Whole) else inputs.one
        return (
            _InnerChange(NONE, NONE, fan_in * math.sqrt(square), fan_in * square)
            if gradient.one > 0
            else UNMOVED
        )
    step = first_step(rule, UpdatedMatrix(inputs, gradient, fan_in, fan_out), projection.length)
    return _InnerChange(step.coefficients, step.rest)


def attended(
    projection: Projection,
    moved: _InnerChange,
    gradient: Tokens,
    width: int,
    *,
    last_is_drawn: bool,
    more: Entry,
) -> MatrixStep:
    """Through attention's mixing and its last matrix.

    more: what `_met` says. last_is_drawn: False where the identity stands for the last matrix, and
    scatters nothing.
    """
    tokens = projection.length

    def onward(matrix: Tokens) -> Tokens:
        return forward(projection.back, matrix, tokens)

    scatter = onward(moved.rest)
    if last_is_drawn:
        fresh = onward(sandwich(moved.coefficients, gradient.scaled(1 / width), tokens))
        scatter = scatter.plus(fresh.scaled(more))
    return MatrixStep(onward(moved.coefficients), scatter)


def _met(applied: Applied, projection: Projection) -> Entry:
    """By how much more what moves along gradients scatters than as many fresh vectors would.

    A query's gradient is made of the very keys that it meets, and a key's of the queries. To a
    logit both add its own gradient times the other's square: twice the same, which is counted with
    queries. Of random logits over 4 to 64 keys Σ w⁴ is about so much of (Σ w²)²: one over the keys,
    and a ninth of the logits' variance.
    """
    if projection.name != "query":
        return 1.0
    (one, two, _), places = applied.input.mean, applied.input.atoms.places
    twice = 1 + one / max(one - two, 1e-9 * one)
    keys = projection.length if places is None else places.keys
    more = 1 + applied.site.stack.width_of_head * twice**2 * (1 / keys + applied.map.variance / 9)
    return more if places is None else np.maximum.outer(more, more)


def activated(
    projection: Projection,
    moved: _InnerChange,
    made: Map,
    gradients: tuple[Tokens, Tokens],
    fan_out: int,
    activation: Activation,
) -> MatrixStep:
    """Through the activation and the last matrix.

    gradients: at F's output, and at the outputs of this matrix.

    What a token's gradient has moved passes the very slopes that the gradient came through, which
    is why second moments of slopes alone do not do.
    """
    above, below = gradients
    tokens, inputs, back_map = projection.length, over_tokens(projection.inputs), projection.back
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
    moved: _InnerChange,
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


@dataclass(frozen=True, slots=True)
class _SublayerChange:
    """A sub-layer's output after an update at a rate of 1: Gram matrices of its change over
    tokens.
    """

    own: Tokens
    """By its own matrices, its input as it was."""
    amplified: Tokens
    """What it makes of the change at its input."""
    total: Tokens


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
        arrived = [*(over_tokens(one.input) for one in gradients.arrived), over_tokens(at_output)]
        self._ledger = ledger_of(
            stack.atoms, self.tokens, [read.gradient_coefficients for read in reads], arrived
        )
        self.learnt = self._learnt(gradients)
        self.moved = [
            self._move(number, applied, at)
            for number, (applied, at) in enumerate(
                zip(stack.applied, gradients.arrived, strict=True)
            )
        ]

    def gram(self, value: Moments) -> Tokens:
        """E⟨δx_s, δx_t⟩ / d of a value of the stack, once every sub-layer below it has moved."""
        row = _change_coefficients(value)
        return self._ledger.gram(row, self._ledger.along(row))

    def downhill(self, g: Tokens) -> float:
        """-Σ_t E⟨g_t, δy_t⟩ over all tokens: how much the loss falls, to first order. g: at the
        output.
        """
        along = self._ledger.along(_change_coefficients(self.stack.output))
        return trace(g, self._ledger.at(along, -1), self.tokens)

    def _learnt(self, gradients: StackGradients) -> list[MatrixStep]:
        uses = self.stack.atoms.learnt
        steps = learnt_steps(self.rule, uses, gradients.learnt, self.width, self.tokens)
        for use, step in zip(uses, steps, strict=True):
            self._ledger.put(use.atom, *step)
        return steps

    def _move(self, number: int, applied: Applied, at: Arrived) -> _SublayerChange:
        row = _change_coefficients(applied.input)
        along = self._ledger.along(row)
        gram = self._ledger.gram(row, along)
        if applied.input.normed:
            # A norm takes off what lies along its input, and LayerNorm the mean: of what is random,
            # a d-th each.
            gram = gram.scaled(1 - 2 / self.stack.atoms.scatter_width)
        at_input = self._ledger.at(along, number)
        owns = self._owns(applied, at)
        # A matrix is random but for what it has made of gradients on their way back.
        onward = [projection.onward for projection in applied.map.projections]
        brought = [_InnerChange(at_input.scaled(factor), gram.scaled(factor)) for factor in onward]
        last = self._last(applied, at)
        both = [one.plus(other) for one, other in zip(owns, brought, strict=True)]
        total = together(self._through(applied, at, both), last)
        self._ledger.put(applied.atom, *total)
        g = over_tokens(at.output)

        def square(step: MatrixStep) -> Tokens:
            return square_of(step, g, self.width, self.tokens)

        return _SublayerChange(
            own=square(together(self._through(applied, at, owns), last)),
            amplified=square(self._through(applied, at, brought)),
            total=square(total),
        )

    def _owns(self, applied: Applied, at: Arrived) -> list[_InnerChange]:
        activates = applied.site.kind == "feed_forward"
        return [
            own(
                self.rule,
                projection,
                over_tokens(g),
                self.width,
                self._outputs(applied),
                activated=activates,
            )
            for projection, g in zip(applied.map.projections, at.projections, strict=True)
        ]

    def _last(self, applied: Applied, at: Arrived) -> MatrixStep:
        """The step of F's last matrix."""
        made, kind = applied.map, applied.site.kind
        if kind != "feed_forward" and not self.last_is_drawn:
            return STILL
        hidden, inputs = None, over_tokens(made.last_inputs)
        if kind == "feed_forward":
            x = applied.input
            mean = made.last_mean / made.last_inputs.one**0.5
            hidden = Hidden(
                self.stack.setting.activation, made.variance, correlation(x.p, x.q), mean
            )
        return first_step(
            self.rule,
            UpdatedMatrix(inputs, over_tokens(at.output), made.last_width, self.width, hidden),
            self.tokens,
        )

    def _through(self, applied: Applied, at: Arrived, moved: list[_InnerChange]) -> MatrixStep:
        """To F's output."""
        total, outputs = STILL, self._outputs(applied)
        for projection, one, g in zip(applied.map.projections, moved, at.projections, strict=True):
            if one is UNMOVED:
                continue
            if applied.site.kind == "feed_forward":
                gradients = (over_tokens(at.output), over_tokens(g))
                step = activated(
                    projection, one, applied.map, gradients, outputs, self.stack.setting.activation
                )
            else:
                drawn, more = self.last_is_drawn, _met(applied, projection)
                step = attended(
                    projection, one, over_tokens(g), outputs, last_is_drawn=drawn, more=more
                )
            total = together(total, step)
        return total

    def _outputs(self, applied: Applied) -> int:
        """Of F's first matrices."""
        return applied.site.stack.ffn_width if applied.site.kind == "feed_forward" else self.width


def _change_coefficients(x: Moments) -> Array:
    """Of a value's change: those of gradients, since a norm divides both by the size that was
    drawn.

    What no gradient passes, a change does pass.
    """
    back = x.gradient_coefficients
    if back.all():
        return back
    chosen: Array = np.where(back != 0, back, x.coefficients)
    return chosen
