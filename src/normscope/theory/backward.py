"""Gradients back through a stack on moments, with the coefficients that carried its values forward.

They begin with the gradient of the loss at the outputs (`loss.py`) and are added up at the parts of
the stack's values (`flow.py`).

The equations are T11, T12 and T15 of docs/theory.md.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .crossing import Crossing
from .flow import GradientFlow, LoopedGradientFlow
from .mixing import NOTHING, Entry, Products, make
from .moments import Remainder, Use
from .operations import CENTRING
from .places import Places
from .stream import Applied, MomentStack
from .sublayers import Map, gradient_square


class Arrived(NamedTuple):
    """Holds the gradients at one F."""

    output: Products
    projections: tuple[Products, ...]
    """At the output of each, in the order of the map."""
    input: Products
    """The gradient that comes back through F to what it reads."""


@dataclass(frozen=True, slots=True)
class StackGradients:
    """Holds the gradients of the mean loss per target token, in nats."""

    weights: dict[str, list[float]]
    """Frobenius norm of each matrix's gradient by its name, block by block."""
    memory: Products
    """At an encoder's output, of all cross-attention together."""
    arrived: list[Arrived]
    """Gradients at every F, in the order in which sub-layers were applied."""
    learnt: list[Products]
    """At the parts of the stream that trained numbers of the formula bring, in their order."""


def backward(stack: MomentStack, at_output: Products, along: Entry = 0.0) -> StackGradients:
    """Follows gradients back through a stack that has run forward.

    A path through a sub-layer is independent of every path elsewhere, since its matrices are its
    own: squared gradients add up over sub-layers, but for what lies along the output
    (`crossing.py`). Paths past the sub-layers have added up in the coefficients, signs and all.
    Paths through one sub-layer in two passes have a covariance, and its matrices' gradients are
    sums over passes.

    at_output: moments of the loss's gradient at the output tokens. along: the part of its E‖g‖²
    that lies along the output itself.

    Equation T12.
    """
    looped = bool(stack.atoms.related[0])
    flow = LoopedGradientFlow(stack.atoms) if looped else GradientFlow(stack.atoms)
    # Everything below gets its gradient from here.
    flow.add(stack.output, at_output)
    sublayers = _Sublayers(stack)
    crossing = Crossing(stack, along) if np.any(along) else None
    # The norm below takes the mean over features off what comes through F; what comes past F has
    # none.
    left = 1 - 1 / stack.atoms.scatter_width if stack.setting.norm in CENTRING else 1.0
    kept = 1 / (1 - stack.setting.dropout)
    remainders = list(stack.atoms.remainders)
    uses = list(stack.atoms.learnt)
    arrived: list[Arrived] = []
    learnt: list[Products] = []
    # From the last F to the first: what arrives at F(x) is complete once all later values are
    # done.
    for applied in reversed(stack.applied):
        learnt += _at_learnt(flow, remainders, uses, applied.atom)
        _through_squashing(flow, remainders, applied.atom)
        through = left if applied.input.normed else 1.0
        squares: dict[str, float] = defaultdict(float)
        # A pass with itself, and its covariances with later passes through the same matrices.
        for later, made in stack.maps(applied):
            own = later == applied.atom
            one, two, apart = flow.at(applied.atom, later)
            g = make(Products, (one * kept if own else one, two, apart))
            along_output: Sequence[Products] = ()
            if crossing is not None:
                g = crossing.less_own(applied, later, g)
                along_output = crossing.at_projections(applied, later)
            # Through F's transpose, and past it by the coefficients of the stream.
            at_input, at_projections = sublayers.through(applied, made, g, along_output)
            sublayers.add_squares(squares, made, g, at_projections, times=1 if own else 2)
            if crossing is not None and own:
                at_input = at_input.plus(crossing.at_input(applied))
            flow.add(applied.input, at_input, through, (applied.atom, later))
            if own:
                arrived.append(Arrived(g, at_projections, at_input.scaled(through)))
        sublayers.keep(applied, squares)
    learnt += _at_learnt(flow, remainders, uses, -1)
    return StackGradients(sublayers.norms(), sublayers.memory, arrived[::-1], learnt[::-1])


class _Sublayers:
    """The sub-layers of a stack on the way back: what comes through each F, and the gradients of
    its matrices.
    """

    def __init__(self, stack: MomentStack) -> None:
        self.stack = stack
        self.memory = NOTHING
        """At an encoder's output, of all cross-attention so far."""
        self._squares: dict[tuple[str, bool], list[float]] = defaultdict(list)
        """‖·‖² of a matrix's gradient, by its name and whether it belongs to cross-attention; from
        the last block to the first.
        """

    def through(
        self, applied: Applied, made: Map, g: Products, along_output: Sequence[Products] = ()
    ) -> tuple[Products, tuple[Products, ...]]:
        """Returns the gradient at F's input, of a gradient g at its output, and those at the
        outputs of its projections; what cross-attention sends to the memory is kept.

        along_output: what gradients at each projection have in addition, because they lie along the
        output; empty where nothing does.

        Equations T6, T9 and T15.
        """
        crosses = applied.site.kind == "cross_attention"
        at_input = NOTHING
        at_projections = []
        for number, projection in enumerate(made.projections):
            # At the matrix's outputs, then at its inputs by its gain.
            h = projection.back(g)
            if along_output:
                h = h.plus(along_output[number])
            at_projections.append(h)
            if crosses and not projection.of_query:
                tokens = projection.tokens
                at_memory = tokens.mean(h) if isinstance(tokens, Places) else h
                self.memory = self.memory.plus(at_memory, projection.onward)
            else:
                at_input = at_input.plus(h, projection.onward)
        return at_input, tuple(at_projections)

    def add_squares(
        self,
        squares: dict[str, float],
        made: Map,
        g: Products,
        at_projections: tuple[Products, ...],
        *,
        times: int,
    ) -> None:
        """Adds ‖Σ_i g_i x_iᵀ‖² of each matrix of an F.

        times: 2 of two passes, whose product stands twice in the square of their sum.

        Equation T11.
        """
        width, sequences = self.stack.atoms.width, self.stack.setting.sequences
        for projection, h in zip(made.projections, at_projections, strict=True):
            squares[projection.name] += times * gradient_square(
                h, projection.inputs, width, projection.tokens, sequences
            )
        for name in made.silent:
            squares[name] += 0.0
        squares[made.last] += times * gradient_square(
            g, made.last_inputs, made.last_width, self.stack.tokens, sequences
        )

    def keep(self, applied: Applied, squares: dict[str, float]) -> None:
        """Notes the squares of one sub-layer, which stands before those that were noted. Equation
        T11.
        """
        crosses = applied.site.kind == "cross_attention"
        for name, square in squares.items():
            self._squares[name, crosses].append(square)

    def norms(self) -> dict[str, list[float]]:
        """Returns the Frobenius norms of the matrices' gradients, block by block: a matrix's
        gradient is the sum over passes. Equations T11 and T18.
        """
        loops = self.stack.placement.stack.loops
        found = {}
        for (name, crosses), squares in self._squares.items():
            # Noted from the last pass of the last block on.
            by_pass = np.array(squares[::-1]).reshape(loops, -1)
            norms = np.sqrt(np.maximum(0.0, by_pass.sum(0)))
            found[f"cross_{name}" if crosses else name] = norms.tolist()
        return found


def _at_learnt(
    flow: GradientFlow, remainders: list[Remainder], uses: list[Use], above: int
) -> list[Products]:
    """Returns gradients at the parts that trained numbers brought after that atom, the last first;
    these parts are taken off the list. Equations T12 and T24.
    """
    found = []
    while uses and uses[-1].atom > above:
        use = uses.pop()
        _through_squashing(flow, remainders, use.atom)
        found.append(flow.at(use.atom))
    return found


def _through_squashing(flow: GradientFlow, remainders: list[Remainder], above: int) -> None:
    """Follows gradients back through the squashing norms that came after that atom, the last one
    first; these norms are taken off the list. Equations T12 and T16.
    """
    while remainders and remainders[-1].atom > above:
        squashed = remainders.pop()
        flow.add(squashed.input, squashed.back(flow.at(squashed.atom)))
