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

What moves inside F is in `inner.py`.

The equation is T20 of docs/theory.md.
"""

from dataclasses import dataclass

import numpy as np

from ..backward import Arrived, StackGradients
from ..mixing import Array, Products
from ..moments import Moments
from ..stream import Applied, MomentStack
from ..sublayers import correlation
from .inner import UNMOVED, InnerChange, activated, attended, met, own
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
from .tokens import (
    Tokens,
    ledger_of,
    over_tokens,
    trace,
)

_TAKEN_OFF_BY_NORMS = 2
"""Directions of d that a norm takes off: what lies along its input, and of LayerNorm the mean.
Equation T20.
"""


@dataclass(frozen=True, slots=True)
class _SublayerChange:
    """Holds the change of a sub-layer's output by an update at a rate of 1: Gram matrices over
    tokens.
    """

    own: Tokens
    """The change by its own matrices, its input as it was."""
    amplified: Tokens
    """The change that it makes of the change at its input."""
    total: Tokens


class Carried:
    """Carries the changes of all parts of a stack's values, sub-layer after sub-layer."""

    def __init__(
        self,
        stack: MomentStack,
        gradients: StackGradients,
        at_output: Products,
        rule: UpdateRule,
        *,
        last_is_drawn: bool,
    ) -> None:
        self.stack = stack
        self.rule = rule
        self.last_is_drawn = last_is_drawn
        self.tokens = stack.setting.tokens
        self.width = stack.atoms.width
        # Changes are kept along the gradients at whatever is read: by each F, and by the loss.
        reads = [applied.input for applied in stack.applied]
        reads.append(stack.output)
        arrived = [over_tokens(at.input) for at in gradients.arrived]
        arrived.append(over_tokens(at_output))
        coefficients = [read.gradient_coefficients for read in reads]
        self._ledger = ledger_of(stack.atoms, self.tokens, coefficients, arrived)
        self.learnt = self._learnt(gradients)
        self.moved: list[_SublayerChange] = []
        # In the order of the forward pass, since each F reads what those before it have moved.
        for applied, at in zip(stack.applied, gradients.arrived, strict=True):
            self.moved.append(self._move(len(self.moved), applied, at))

    def gram(self, value: Moments) -> Tokens:
        """Returns E⟨δx_s, δx_t⟩ / d of a value of the stack, once every sub-layer below it has
        moved. Equation T20.
        """
        row = _change_coefficients(value)
        return self._ledger.gram(row, self._ledger.along(row))

    def downhill(self, g: Tokens) -> float:
        """Returns −Σ_t E⟨g_t, δy_t⟩ over all tokens: how much the loss falls, to first order. g: at
        the output. Equation T20.
        """
        along = self._ledger.along(_change_coefficients(self.stack.output))
        return trace(g, self._ledger.at(along, -1), self.tokens)

    def _learnt(self, gradients: StackGradients) -> list[MatrixStep]:
        """Puts the steps of the formula's own numbers into the ledger. Equation T24."""
        uses = self.stack.atoms.learnt
        steps = learnt_steps(self.rule, uses, gradients.learnt, self.width, self.tokens)
        for use, step in zip(uses, steps, strict=True):
            self._ledger.put(use.atom, *step)
        return steps

    def _move(self, number: int, applied: Applied, at: Arrived) -> _SublayerChange:
        """Moves one sub-layer: by its own matrices, by the change at its input, and by both
        together. Equation T20.
        """
        # What the input has moved, as a sum over the sub-layers below.
        row = _change_coefficients(applied.input)
        along = self._ledger.along(row)
        gram = self._ledger.gram(row, along)
        if applied.input.normed:
            gram = gram.scaled(1 - _TAKEN_OFF_BY_NORMS / self.stack.atoms.scatter_width)
        # Of that, what lies along the gradient that arrives here: it is followed with its sign.
        at_input = self._ledger.at(along, number)
        owns = self._owns(applied, at)
        # A matrix is random but for what it has made of gradients on their way back.
        onward = [projection.onward for projection in applied.map.projections]
        brought = [InnerChange(at_input.scaled(factor), gram.scaled(factor)) for factor in onward]
        # The last matrix moves by itself; what moves before it comes through it as it was.
        last = self._last(applied, at)
        both = [one.plus(other) for one, other in zip(owns, brought, strict=True)]
        total = together(self._through(applied, at, both), last)
        # Later sub-layers read the sum, not its two causes.
        self._ledger.put(applied.atom, *total)
        # Changes along the gradient at F(x) are as large as that gradient.
        g = over_tokens(at.output)

        def square(step: MatrixStep) -> Tokens:
            """Returns the Gram matrix of a step. Equation T20."""
            return square_of(step, g, self.width, self.tokens)

        return _SublayerChange(
            own=square(together(self._through(applied, at, owns), last)),
            amplified=square(self._through(applied, at, brought)),
            total=square(total),
        )

    def _owns(self, applied: Applied, at: Arrived) -> list[InnerChange]:
        """Returns what the own updates of F's first matrices move at their outputs. Equation
        T19.
        """
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
        """Returns the step of F's last matrix, which stands still where it is not drawn. Equation
        T19.
        """
        is_feed_forward = applied.site.kind == "feed_forward"
        if not is_feed_forward and not self.last_is_drawn:
            return STILL
        made = applied.map
        matrix = UpdatedMatrix(
            over_tokens(made.last_inputs),
            over_tokens(at.output),
            made.last_width,
            self.width,
            self._hidden(applied) if is_feed_forward else None,
        )
        return first_step(self.rule, matrix, self.tokens)

    def _hidden(self, applied: Applied) -> Hidden:
        """Returns what the last matrix of a feed-forward reads. Equation T19."""
        made = applied.map
        x = applied.input
        return Hidden(
            self.stack.setting.activation,
            made.variance,
            correlation(x.two, x.one),
            made.last_mean / made.last_inputs.one**0.5,
        )

    def _through(self, applied: Applied, at: Arrived, moved: list[InnerChange]) -> MatrixStep:
        """Carries what moves at the outputs of F's first matrices to F's output. Equation T20."""
        outputs = self._outputs(applied)
        # Steps of different matrices are independent but for what lies along gradients, which
        # adds up.
        total = STILL
        for projection, one, g in zip(applied.map.projections, moved, at.projections, strict=True):
            if one is UNMOVED:
                continue
            gradient = over_tokens(g)
            if applied.site.kind == "feed_forward":
                step = activated(
                    projection,
                    one,
                    applied.map,
                    (over_tokens(at.output), gradient),
                    outputs,
                    self.stack.setting.activation,
                )
            else:
                step = attended(
                    projection,
                    one,
                    gradient,
                    outputs,
                    last_is_drawn=self.last_is_drawn,
                    more=met(applied, projection),
                )
            total = together(total, step)
        return total

    def _outputs(self, applied: Applied) -> int:
        """Returns the fan-out of F's first matrices. Equation T19."""
        return applied.site.stack.ffn_width if applied.site.kind == "feed_forward" else self.width


def _change_coefficients(x: Moments) -> Array:
    """Returns the coefficients of a value's change, which are those of gradients: a norm divides
    both by the size that was drawn.

    Where no gradient passes, a change does, with the coefficient of the value.

    Equation T20.
    """
    # A norm divides a change by the size that was drawn, as it does with gradients.
    back = x.gradient_coefficients
    if back.all():
        return back
    chosen: Array = np.where(back != 0, back, x.coefficients)
    return chosen
