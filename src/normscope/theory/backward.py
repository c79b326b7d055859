"""Gradients back through a stack on moments, with the coefficients that carried its values forward.

They begin with the gradient of the loss at the outputs (`loss.py`) and are added up at the parts of
the stack's values (`flow.py`).

The equations are T11, T12 and T15 of docs/theory.md.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .flow import GradientFlow, LoopedGradientFlow
from .mixing import NOTHING, Entry, Products, make, root
from .moments import Moments, Remainder, Use
from .operations import CENTRING
from .places import Places, whole_of
from .stream import Applied, MomentStack
from .sublayers import Map, gradient_square


class Arrived(NamedTuple):
    """Gradients at one F."""

    output: Products
    projections: tuple[Products, ...]
    """At the output of each, in the order of the map."""
    input: Products
    """Of what comes back through F to what it reads."""


@dataclass(frozen=True, slots=True)
class StackGradients:
    """Of the mean loss per target token, in nats."""

    weights: dict[str, list[float]]
    """Frobenius norm of each matrix's gradient by its name, block by block."""
    memory: Products
    """At an encoder's output, of all cross-attention together."""
    arrived: list[Arrived]
    """In the order in which sub-layers were applied."""
    learnt: list[Products]
    """At the parts of the stream that trained numbers of the formula bring, in their order."""


def backward(stack: MomentStack, at_output: Products, along: Entry = 0.0) -> StackGradients:
    """Follows gradients back through a stack that has run forward.

    A path through a sub-layer is independent of any other, since its matrices are its own: squared
    gradients add up over sub-layers, but for what lies along the output (`_Crossing`). Paths beside
    the sub-layers have added up in the coefficients, signs and all. Paths through one sub-layer in
    two passes have a covariance, and its matrices the sum of what its passes bring.

    at_output: of the loss's gradient at the output tokens. along: what of its E‖g‖² lies along the
    output itself.

    Equation T12.
    """
    looped = bool(stack.atoms.related[0])
    flow = LoopedGradientFlow(stack.atoms) if looped else GradientFlow(stack.atoms)
    flow.add(stack.output, at_output)
    sublayers = _Sublayers(stack)
    crossing = _Crossing(stack, along) if np.any(along) and not looped else None
    # Of what comes through F: the norm below takes the mean over features off, which what comes
    # past F does not have.
    left = 1 - 1 / stack.atoms.scatter_width if stack.setting.norm in CENTRING else 1.0
    kept = 1 / (1 - stack.setting.dropout)
    remainders = list(stack.atoms.remainders)
    uses = list(stack.atoms.learnt)
    arrived: list[Arrived] = []
    learnt: list[Products] = []
    for applied in reversed(stack.applied):
        learnt += _at_learnt(flow, remainders, uses, applied.atom)
        _through_squashing(flow, remainders, applied.atom)
        through = left if applied.input.normed else 1.0
        squares: dict[str, float] = defaultdict(float)
        for later, made in stack.maps(applied):
            own = later == applied.atom
            one, two, apart = flow.at(applied.atom, later)
            g = make(Products, (one * kept if own else one, two, apart))
            at_input, at_projections = sublayers.through(applied, made, g)
            sublayers.add_squares(squares, made, g, at_projections, times=1 if own else 2)
            if crossing is not None:
                at_input = at_input.plus(crossing.at(applied))
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
        """Of a matrix's gradient, by its name and whether it belongs to cross-attention; from the
        last block to the first.
        """

    def through(
        self, applied: Applied, made: Map, g: Products
    ) -> tuple[Products, tuple[Products, ...]]:
        """Returns the gradient at F's input, of one g at its output, and those at the outputs of
        its projections; what cross-attention sends to the memory is kept.
        """
        crosses = applied.site.kind == "cross_attention"
        at_input = NOTHING
        at_projections = []
        for projection in made.projections:
            h = projection.back(g)
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
        """Adds ‖Σ_i g_i x_iᵀ‖² of each matrix of an F, so many times."""
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
        """Notes the squares of one sub-layer, which stands before those that were noted."""
        crosses = applied.site.kind == "cross_attention"
        for name, square in squares.items():
            self._squares[name, crosses].append(square)

    def norms(self) -> dict[str, list[float]]:
        """Returns the Frobenius norms of the matrices' gradients, block by block."""
        loops = self.stack.placement.stack.loops
        found = {}
        for (name, crosses), squares in self._squares.items():
            by_pass = np.array(squares[::-1]).reshape(loops, -1)
            norms = np.sqrt(np.maximum(0.0, by_pass.sum(0)))
            found[f"cross_{name}" if crosses else name] = norms.tolist()
        return found


class _Crossing:
    """What gradients past an F have in common with those through it, where both lie in part along
    the output y.

    With a tied projection a token's own row in y puts -y into every gradient, and y is made of what
    every F has made. F's transpose turns -F(x) into its gain times -x, which other tokens have a
    part of.
    """

    def __init__(self, stack: MomentStack, along: Entry) -> None:
        self.stack = stack
        self.size = root(along / stack.output.one)
        self.grown: Entry = 1.0
        """By how much what comes through Fs has made that part larger on the way down."""

    def at(self, applied: Applied) -> Products:
        """Returns twice the covariance of both gradients at what F reads."""
        x, output = applied.input, self.stack.output
        of_branch, branch_back = output.at(applied.atom)
        of_input, input_back = output.at(x.size - 1)
        own, own_back = x.at(x.size - 1)
        reaches = np.all(own) and np.all(own_back) and np.all(of_input)
        if applied.site.kind == "cross_attention" or not reaches:
            return NOTHING
        ratio = of_input / own
        past = self.size * input_back / own_back
        kept = self.grown * ratio
        projection = applied.map.projections[0]
        at_branch = Products(self.size * self.grown * branch_back * of_branch, 0.0 * x.two)
        back = projection.back(at_branch).scaled(projection.onward)
        # A norm between takes off what lies along its input.
        normed = applied.normed_values or (x.normed and applied.atom not in x.atoms.past_norms)
        # Of the gradient past F with x, of one token, which has its row as well, and of two.
        with_x = Products(past * (output.one / ratio - kept * x.one), -x.two * (past * kept))
        if isinstance(with_x.two, np.ndarray):
            found, whole, off = _crossed_by_place(x, back, with_x, normed)
        else:
            found, whole, off = _crossed(x, back, with_x, normed, self.stack.setting.tokens)
        self.grown = self.grown + (whole - off) / (past * ratio)
        return found


def _crossed(
    x: Moments, back: Products, with_x: Products, normed: bool, tokens: int
) -> tuple[Products, Entry, Entry]:
    """Returns twice the covariance of gradients through F and past it; how much of x comes back
    through F from all tokens, and what a norm takes off it.

    back: the part of x, of a token's own and of each other one's. with_x: the gradient past F times
    x, of one token and of two.

    Equation T15.
    """
    one, two = with_x.one, with_x.two
    whole = back.one + (tokens - 1) * back.two
    off = (back.one + (tokens - 1) * back.two * x.two / x.one) * normed
    of_one = (back.one - off) * one + (tokens - 1) * back.two * two
    of_two = (back.one - off) * two + back.two * (one + (tokens - 2) * two)
    return Products(-2 * of_one, -2 * of_two), whole, off


def _crossed_by_place(
    x: Moments, back: Products, with_x: Products, normed: bool
) -> tuple[Products, Entry, Entry]:
    """Returns the same where places have moments of their own.

    Equations T15 and T17.
    """
    through, past = whole_of(back), whole_of(with_x)
    # What two tokens have of each other's x.
    share = x.two / np.sqrt(np.outer(x.one, x.one))
    np.fill_diagonal(share, 1.0)
    whole = through.sum(1)
    off = (through * share).sum(1) * normed
    found = off[:, None] * past - through @ past
    return Products(2 * found.diagonal(), found + found.T), whole, off


def _at_learnt(
    flow: GradientFlow, remainders: list[Remainder], uses: list[Use], above: int
) -> list[Products]:
    """Gradients at parts that trained numbers brought after that atom, the last first; they are
    taken off the list.
    """
    found = []
    while uses and uses[-1].atom > above:
        use = uses.pop()
        _through_squashing(flow, remainders, use.atom)
        found.append(flow.at(use.atom))
    return found


def _through_squashing(flow: GradientFlow, remainders: list[Remainder], above: int) -> None:
    """Back through the squashing norms that came after that atom, the last one first; they are
    taken off the list.
    """
    while remainders and remainders[-1].atom > above:
        squashed = remainders.pop()
        flow.add(squashed.input, squashed.back(flow.at(squashed.atom)))
