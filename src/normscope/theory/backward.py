"""Gradients back through a stack on moments, with the coefficients that carried its values forward.

They begin with the gradient of the loss at the outputs.
"""

import math
from array import array
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .kernels import normal_nodes
from .mixing import NOTHING, Products, make, outer_norm
from .moments import Atoms, Lane, Moments, Remainder, Use, single
from .operations import CENTRING, norms_of
from .settings import ModelSetting, of_setting
from .stream import MomentEnd, MomentStack


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


def backward(stack: MomentStack, at_output: Products) -> StackGradients:
    """The way back through a stack that has run forward.

    at_output: of the loss's gradient at the output tokens.

    A path through a sub-layer is independent of any other, since its matrices are its own: squared gradients add up
    over sub-layers. Paths beside the sub-layers have added up in the coefficients, signs and all.
    """
    flow, setting = _Flow(stack.atoms.count), stack.setting
    flow.add(stack.output, at_output)
    norms: dict[tuple[str, bool], list[float]] = defaultdict(list)
    memory, kept, width, sequences = NOTHING, 1 / (1 - setting.dropout), stack.atoms.width, setting.sequences
    # Of what comes through F: the norm below takes the mean over features off, which what comes past F does not have.
    left = 1 - 1 / stack.atoms.scatter_width if setting.norm in CENTRING else 1.0
    remainders, uses = list(stack.atoms.remainders), list(stack.atoms.learnt)
    arrived: list[Arrived] = []
    learnt: list[Products] = []
    for applied in reversed(stack.applied):
        learnt += _at_learnt(flow, remainders, uses, applied.atom)
        _through_squashing(flow, remainders, applied.atom)
        one, two, apart = flow.at(applied.atom)
        g, made = make(Products, (one * kept, two, apart)), applied.map
        crosses = applied.site.kind == "cross_attention"
        at_input, at_projections = NOTHING, []
        for projection in made.projections:
            h = projection.back(g)
            at_projections.append(h)
            norms[projection.name, crosses].append(
                outer_norm(h, projection.inputs, width, projection.tokens, sequences)
            )
            if crosses and not projection.of_query:
                memory = memory.plus(h, projection.onward)
            else:
                at_input = at_input.plus(h, projection.onward)
        for name in made.silent:
            norms[name, crosses].append(0.0)
        norms[made.last, crosses].append(outer_norm(g, made.last_inputs, made.last_width, setting.tokens, sequences))
        through = left if applied.input.normed else 1.0
        flow.add(applied.input, at_input, through)
        arrived.append(Arrived(g, tuple(at_projections), at_input.scaled(through)))
    learnt += _at_learnt(flow, remainders, uses, -1)
    weights = {f"cross_{name}" if crosses else name: found[::-1] for (name, crosses), found in norms.items()}
    return StackGradients(weights, memory, arrived[::-1], learnt[::-1])


def _at_learnt(flow: "_Flow", remainders: list[Remainder], uses: list[Use], above: int) -> list[Products]:
    """Gradients at parts that trained numbers brought after that atom, the last first; they are taken off the list."""
    found = []
    while uses and uses[-1].atom > above:
        use = uses.pop()
        _through_squashing(flow, remainders, use.atom)
        found.append(flow.at(use.atom))
    return found


def _through_squashing(flow: "_Flow", remainders: list[Remainder], above: int) -> None:
    """Back through the squashing norms that came after that atom, the last one first; they are taken off the list."""
    while remainders and remainders[-1].atom > above:
        squashed = remainders.pop()
        flow.add(squashed.input, squashed.back(flow.at(squashed.atom)))


class _Flow:
    """Gradients at atoms, asked for from the last one to the first.

    A lane's coefficients share a factor, so what arrives at any value of the lane is one running sum; only where a
    lane was copied from another does it have to be spread over all atoms below.
    """

    def __init__(self, atoms: int) -> None:
        self._spread = [array("d", bytes(8 * atoms)) for _ in range(3)]
        self._open: dict[Lane, list[float]] = {}
        self._later: dict[int, list[tuple[Lane, list[float]]]] = defaultdict(list)
        self._next = atoms

    def add(self, x: Moments, g: Products, factor: float = 1.0) -> None:
        """`factor` times the gradient g at the value x, of atoms below the last that was asked for."""
        square = x.back * x.back * factor
        arrived = [g.one * square, g.two * square, g.apart * square]
        if x.lane is None:
            for total, part in zip(self._spread, arrived, strict=True):
                total[x.size - 1] += part
        elif x.size >= self._next:
            self._pour(x.lane, arrived)
        else:
            self._later[x.size].append((x.lane, arrived))

    def at(self, atom: int) -> Products:
        """The gradient at an atom."""
        self._next = atom
        if self._later:
            for size in [size for size in self._later if size > atom]:
                for lane, arrived in self._later.pop(size):
                    self._pour(lane, arrived)
        for lane in [lane for lane in self._open if atom < lane.start]:
            self._close(lane)
        one, two, apart = (total[atom] for total in self._spread)
        for lane, running in self._open.items():
            square = lane.back[atom] * lane.back[atom]
            one, two, apart = one + square * running[0], two + square * running[1], apart + square * running[2]
        return make(Products, (one, two, apart))

    def _pour(self, lane: Lane, arrived: list[float]) -> None:
        running = self._open.setdefault(lane, [0.0, 0.0, 0.0])
        for place, part in enumerate(arrived):
            running[place] += part

    def _close(self, lane: Lane) -> None:
        """All that is left of the lane are the coefficients it was made with."""
        squares = np.frombuffer(lane.back)[: lane.start] ** 2
        for total, part in zip(self._spread, self._open.pop(lane), strict=True):
            below = np.frombuffer(total)[: lane.start]
            below += part * squares


def loss_gradient(stack: MomentStack, model: ModelSetting) -> Products:
    """At an output token: E‖Σ_v (softmax_v - target_v) E_v‖² / N², N all tokens, and the products of two tokens.

    Logits are Gaussian with the variance q and the covariance p of the output, so that over V entries E Σ softmax² is
    e^q / V and E Σ softmax softmax' is e^p / V, as long as they are small. Tokens that are asked for the same entry
    have its row in common. With a tied projection the output may still hold its own input row E_o, which then has a
    logit apart and a share of the softmax, and so a part of the gradient. Of that part a norm at the output takes off
    what lies along the output itself, y: E_o (1 - α²) is left, and α y, which tokens have in common. (No norm further
    down takes anything off: F is homogeneous, so that the gradient stays orthogonal to the stream.) A text asks for
    the rows that its next places hold, which is the opposite sign.
    """
    output = stack.output
    vocabulary = model.vocabulary
    own_row = of_setting(model.setting, stack.placement).row(stack.placement) if model.tied else None
    scale = _output_scale(stack, vocabulary, own_row or 1.0)
    row = scale**2 * (own_row or 1.0)
    own = _OwnRow(0.0, 0.0, 0.0) if own_row is None else _own_row(stack, model, own_row, scale)
    removed = own.along if output.normed else 0.0
    others, asked = 1 - 2 * own.share + own.square, 1 - model.label_smoothing
    one = asked**2 * (1 - 2 / vocabulary) + own.square * (1 - removed)
    one += others * _softmaxes(row * output.q, vocabulary, 0)

    def common(p: float, same: float, read: float) -> float:
        found = (1 - own.share) ** 2 * _softmaxes(row * p, vocabulary, 1) + own.share**2 * removed * p / output.q
        return found + (asked**2 + own.share**2 * (1 - removed)) * same - 2 * asked * own.share * read

    two = common(output.p, model.target.same_within, model.target.asked_within)
    apart = common(output.apart, model.target.same_apart, model.target.asked_apart)
    return Products(one, two, apart).scaled(row / (model.tokens * model.sequences) ** 2)


def _softmaxes(covariance: float, vocabulary: int, less: int) -> float:
    """E Σ_v softmax_v softmax'_v, `less` what it is without a covariance where targets take that away."""
    return min(1.0, (math.exp(min(covariance, 700.0)) - less) / vocabulary)


def _output_scale(stack: MomentStack, vocabulary: int, row: float) -> float:
    """What the placement multiplies rows of that squared length of the output projection with."""
    atoms = Atoms(stack.placement.stack.width)
    rows = single(atoms, atoms.add(row / atoms.width, 0.0))
    end = MomentEnd(norms_of(stack.setting.norm, stack.placement.norm_epsilon))
    return float(stack.placement.output_rows(rows, end, vocabulary).coefficients[0])


@dataclass(frozen=True, slots=True)
class _OwnRow:
    """A token's own input row at the output: its share of the softmax, mean and mean square, and of E‖y‖²."""

    share: float
    square: float
    along: float


def _own_row(stack: MomentStack, model: ModelSetting, row: float, scale: float) -> _OwnRow:
    output = stack.output
    # What is looked up is a multiple of the row, and dropout on it leaves its mean.
    looked_up = stack.atoms.products(0).one * (1 - model.dropout)
    coefficient = float(output.coefficients[0])
    logit = coefficient * math.sqrt(model.width * looked_up * row) * scale
    # Against V entries whose exponentials have the mean e^(q/2); the rest of the output moves the row's own logit.
    others = math.log(model.vocabulary) + scale**2 * row * output.q / 2
    spread = scale * math.sqrt(row * max(0.0, output.q - coefficient**2 * looked_up))
    nodes, weights = normal_nodes(24)
    shares = 1 / (1 + np.exp(np.clip(others - logit - spread * nodes, -700, 700)))
    return _OwnRow(float(weights @ shares), float(weights @ shares**2), coefficient**2 * looked_up / output.q)
