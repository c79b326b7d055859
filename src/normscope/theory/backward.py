"""Gradients back through a stack on moments, with the coefficients that carried its values forward.

They begin with the gradient of the loss at the outputs.
"""

import math
from array import array
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .kernels import normal_nodes
from .lanes import Lane, first_of
from .mixing import NOTHING, Array, Entry, Products, make, root, softmax_square, squared
from .moments import Atoms, Moments, Remainder, Use, single
from .operations import CENTRING, norms_of
from .places import Places, scaled, whole_of
from .settings import InitialState, ModelSetting
from .stream import Applied, MomentEnd, MomentStack
from .sublayers import gradient_square

_FEW = 1e-3
"""Of a sum over the vocabulary: where no entry has more on average, it is as good as its mean."""


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
    """The way back through a stack that has run forward.

    at_output: of the loss's gradient at the output tokens. along: what of its E‖g‖² lies along the
    output itself.

    A path through a sub-layer is independent of any other, since its matrices are its own: squared
    gradients add up over sub-layers, but for what lies along the output (`_Crossing`). Paths beside
    the sub-layers have added up in the coefficients, signs and all. Paths through one sub-layer in
    two passes have a covariance, and its matrices the sum of what its passes bring.
    """
    flow, setting = (_LoopedFlow if stack.atoms.related[0] else _Flow)(stack.atoms), stack.setting
    flow.add(stack.output, at_output)
    squares: dict[tuple[str, bool], list[float]] = defaultdict(list)
    memory, kept, width, sequences = (
        NOTHING,
        1 / (1 - setting.dropout),
        stack.atoms.width,
        setting.sequences,
    )
    # Of what comes through F: the norm below takes the mean over features off, which what comes
    # past F does not have.
    left = 1 - 1 / stack.atoms.scatter_width if setting.norm in CENTRING else 1.0
    crossing = _Crossing(stack, along) if np.any(along) and not stack.atoms.related[0] else None
    remainders, uses = list(stack.atoms.remainders), list(stack.atoms.learnt)
    arrived: list[Arrived] = []
    learnt: list[Products] = []
    for applied in reversed(stack.applied):
        learnt += _at_learnt(flow, remainders, uses, applied.atom)
        _through_squashing(flow, remainders, applied.atom)
        crosses = applied.site.kind == "cross_attention"
        through = left if applied.input.normed else 1.0
        found: dict[str, float] = defaultdict(float)
        for later, made in stack.maps(applied):
            own = later == applied.atom
            one, two, apart = flow.at(applied.atom, later)
            g, times = make(Products, (one * kept if own else one, two, apart)), 1 if own else 2
            at_input, at_projections = NOTHING, []
            for projection in made.projections:
                h, of = projection.back(g), projection.tokens
                at_projections.append(h)
                found[projection.name] += times * gradient_square(
                    h, projection.inputs, width, of, sequences
                )
                if crosses and not projection.of_query:
                    memory = memory.plus(
                        of.mean(h) if isinstance(of, Places) else h, projection.onward
                    )
                else:
                    at_input = at_input.plus(h, projection.onward)
            for name in made.silent:
                found[name] += 0.0
            found[made.last] += times * gradient_square(
                g, made.last_inputs, made.last_width, stack.tokens, sequences
            )
            if crossing is not None:
                at_input = at_input.plus(crossing.at(applied))
            flow.add(applied.input, at_input, through, (applied.atom, later))
            if own:
                arrived.append(Arrived(g, tuple(at_projections), at_input.scaled(through)))
        for name, square in found.items():
            squares[name, crosses].append(square)
    learnt += _at_learnt(flow, remainders, uses, -1)
    loops = stack.placement.stack.loops
    sums = {
        f"cross_{name}" if of_cross else name: np.array(of[::-1])
        for (name, of_cross), of in squares.items()
    }
    weights = {
        name: np.sqrt(np.maximum(0.0, of.reshape(loops, -1).sum(0))).tolist()
        for name, of in sums.items()
    }
    return StackGradients(weights, memory, arrived[::-1], learnt[::-1])


class _Crossing:
    """What gradients past an F have in common with those through it, where both lie in part along
    the output y.

    With a tied projection a token's own row in y puts -y into every gradient, and y is made of what
    every F has made. F's transpose turns -F(x) into its gain times -x, which other tokens have a
    part of.
    """

    def __init__(self, stack: MomentStack, along: Entry) -> None:
        self.stack, self.size, self.grown = stack, root(along / stack.output.q), 1.0
        """grown: by how much what comes through Fs has made that part larger on the way down."""

    def at(self, applied: Applied) -> Products:
        """Twice the covariance of both gradients at what F reads."""
        x, output, made, n = (
            applied.input,
            self.stack.output,
            applied.map.projections[0],
            self.stack.setting.tokens,
        )
        (c, b), (c_x, b_x), (own, own_back) = (
            output.at(applied.atom),
            output.at(x.size - 1),
            x.at(x.size - 1),
        )
        if applied.site.kind == "cross_attention" or not (
            np.all(own) and np.all(own_back) and np.all(c_x)
        ):
            return NOTHING
        ratio, past = c_x / own, self.size * b_x / own_back
        kept = self.grown * ratio
        back = made.back(Products(self.size * self.grown * b * c, 0.0 * x.p)).scaled(made.onward)
        # A norm between takes off what lies along its input.
        normed = applied.normed_values or (x.normed and applied.atom not in x.atoms.past_norms)
        # Of the gradient past F with x, of one token, which has its row as well, and of two.
        one, two = past * (output.q / ratio - kept * x.q), -x.p * (past * kept)
        if isinstance(two, np.ndarray):
            through, with_x, share = (
                whole_of(back),
                whole_of(Products(one, two)),
                x.p / np.sqrt(np.outer(x.q, x.q)),
            )
            np.fill_diagonal(share, 1.0)
            whole, off = through.sum(1), (through * share).sum(1) * normed
            found = off[:, None] * with_x - through @ with_x
            found = Products(2 * found.diagonal(), found + found.T)
        else:
            whole, off = (
                back.one + (n - 1) * back.two,
                (back.one + (n - 1) * back.two * x.p / x.q) * normed,
            )
            of_two = (back.one - off) * two + back.two * (one + (n - 2) * two)
            found = Products(-2 * ((back.one - off) * one + (n - 1) * back.two * two), -2 * of_two)
        self.grown = self.grown + (whole - off) / (past * ratio)
        return found


def _at_learnt(
    flow: "_Flow", remainders: list[Remainder], uses: list[Use], above: int
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


def _through_squashing(flow: "_Flow", remainders: list[Remainder], above: int) -> None:
    """Back through the squashing norms that came after that atom, the last one first; they are
    taken off the list.
    """
    while remainders and remainders[-1].atom > above:
        squashed = remainders.pop()
        flow.add(squashed.input, squashed.back(flow.at(squashed.atom)))


class _Flow:
    """Gradients at atoms, asked for from the last one to the first.

    A lane's coefficients share a factor, so what arrives at any value of the lane is one running
    sum; only where a lane was copied from another does it have to be spread over all atoms below.
    """

    def __init__(self, atoms: Atoms) -> None:
        count, places = atoms.count, atoms.places
        self._spread: list[Any] = [array("d", bytes(8 * count)) for _ in range(3)]
        if places is not None:
            shapes = (
                (count, places.count),
                (count, *(places.count,) * 2),
                (count, *(places.count,) * 2),
            )
            self._spread = [np.zeros(shape) for shape in shapes]
        self._open: dict[Lane, list[Entry]] = {}
        self._later: dict[int, list[tuple[Lane, list[Entry]]]] = defaultdict(list)
        self._next = count

    def add(
        self, x: Moments, g: Products, factor: float = 1.0, ends: tuple[int, int] = (-1, -1)
    ) -> None:
        """`factor` times the gradient g at the value x, of atoms below the last that was asked for.

        ends: atoms of what a sub-layer made of x, and in which pass else what came back has the
        covariance g.
        """
        square, pair = squared(x.back)
        square, pair = square * factor, pair * factor
        arrived = [g.one * square, g.two * pair, g.apart * pair]
        if x.lane is None:
            for total, part in zip(self._spread, arrived, strict=True):
                total[x.size - 1] += part
        elif x.size >= self._next:
            self._pour(x.lane, arrived)
        else:
            self._later[x.size].append((x.lane, arrived))

    def at(self, atom: int, later: int = -1) -> Products:
        """The gradient at an atom; of two passes the covariance with that at a `later` one."""
        self._next = atom
        if self._later:
            for size in [size for size in self._later if size > atom]:
                for lane, arrived in self._later.pop(size):
                    self._pour(lane, arrived)
        for lane in [lane for lane in self._open if atom < lane.start]:
            self._close(lane)
        one, two, apart = [total[atom] for total in self._spread]
        for lane, running in self._open.items():
            square, pair = squared(lane.back[atom])
            one, two, apart = (
                one + square * running[0],
                two + pair * running[1],
                apart + pair * running[2],
            )
        return make(Products, (one, two, apart))

    def _pour(self, lane: Lane, arrived: list[Entry]) -> None:
        one, two, apart = self._open.get(lane, (0.0, 0.0, 0.0))
        self._open[lane] = [one + arrived[0], two + arrived[1], apart + arrived[2]]

    def _close(self, lane: Lane) -> None:
        """All that is left of the lane are the coefficients it was made with."""
        back = first_of(lane.back, lane.start)
        squares = back * back
        pairs = back[:, :, None] * back[:, None, :] if back.ndim == 2 else squares
        for total, part, factor in zip(
            self._spread, self._open.pop(lane), (squares, pairs, pairs), strict=True
        ):
            below = (
                total[: lane.start]
                if isinstance(total, np.ndarray)
                else np.frombuffer(total)[: lane.start]
            )
            below += part * factor.reshape(*factor.shape, *(1,) * (below.ndim - factor.ndim))


class _LoopedFlow(_Flow):
    """Of blocks that are run several times: a sum of parts, of which some have covariances, as
    values are.
    """

    def __init__(self, atoms: Atoms) -> None:
        self._arrived, self._rows = Atoms(atoms.width, places=atoms.places), list[Array]()
        self._parts: dict[int, tuple[Moments, int]] = {}

    def add(
        self, x: Moments, g: Products, factor: float = 1.0, ends: tuple[int, int] = (-1, -1)
    ) -> None:
        here, later = ends
        other, part = self._parts[later] if here != later else (x, len(self._rows))
        g = scaled(g.scaled(factor), x.back, other.back, self._arrived.places)
        if here != later:
            self._arrived.relate(part, self._parts[here][1], g)
            return
        self._arrived.add(*g)
        self._rows.append(x.both(scaled=False)[1])
        self._parts[here] = x, part

    def at(self, atom: int, later: int = -1) -> Products:
        nothing = 0 * max(self._rows, key=np.ndim)[0]
        at_both = (
            np.array([row[place] + nothing if place < len(row) else nothing for row in self._rows])
            for place in (atom, later)
        )
        return self._arrived.covariance(*at_both)


def loss_gradient(stack: MomentStack, model: ModelSetting) -> tuple[Products, Entry]:
    """At an output token: E‖Σ_v (softmax_v - target_v) E_v‖² / N², N all tokens, and the products
    of two tokens.

    Logits are Gaussian with the variance q and the covariance p of the output, so that over V
    entries E Σ softmax² is e^q / V and E Σ softmax softmax' is e^p / V as long as they are small,
    and less beyond. Tokens that are asked for the same entry have its row in common. With a tied
    projection the output may still hold its own input row E_o, which then has a logit apart and a
    share of the softmax, and so a part of the gradient. A norm at the output takes off what of it
    lies along the output itself, y: E_o (1 - α²) is left, and α y, which tokens have in common. (No
    norm further down takes anything off: F is homogeneous, so that the gradient stays orthogonal to
    the stream.) A text asks for the rows that its next places hold, which is the opposite sign. The
    second result is E‖α y‖².
    """
    output = stack.output
    vocabulary = model.vocabulary
    own_row = InitialState(model.setting, stack.placement).row if model.tied else None
    scale = _output_scale(stack, vocabulary, own_row or 1.0)
    row = scale**2 * (own_row or 1.0)
    own = _OwnRow(0.0, 0.0, 0.0) if own_row is None else _own_row(stack, model, own_row, scale)
    removed = own.along if output.normed else 0.0
    others, asked = 1 - 2 * own.share + own.square, 1 - model.label_smoothing
    one = asked**2 * (1 - 2 / vocabulary) + own.square * (1 - removed)
    one = one + others * _softmaxes(row * output.q, vocabulary, 0)

    left, shared, along = (
        squared(part)[1] for part in (1 - own.share, own.share, own.share * root(removed))
    )
    size = squared(root(output.q))[1]
    reads = (
        np.add.outer(own.share, own.share) / 2 if isinstance(own.share, np.ndarray) else own.share
    )

    def common(p: Entry, same: float, read: float) -> Entry:
        found = left * _softmaxes(row * p, vocabulary, 1) + along * p / size
        return found + (asked**2 + shared - along) * same - 2 * asked * reads * read

    two = common(output.p, model.target.same_within, model.target.asked_within)
    apart = common(output.apart, model.target.same_apart, model.target.asked_apart)
    size_of_all = row / (model.tokens * model.sequences) ** 2
    return Products(one, two, apart).scaled(size_of_all), own.share**2 * removed * size_of_all


def _softmaxes(covariance: Entry, vocabulary: int, less: int) -> Entry:
    """E Σ_v softmax_v softmax'_v, `less` what it is without a covariance where targets take that
    away.
    """
    if isinstance(covariance, np.ndarray):
        return np.reshape(
            [_softmaxes(one, vocabulary, less) for one in covariance.flat], covariance.shape
        )
    grown = math.exp(min(covariance, 700.0))
    bound = 1.0
    if (
        covariance > 0 and grown > _FEW * vocabulary
    ):  # where few entries have much of the sum, each is held by it
        bound = min(1.0, softmax_square(vocabulary, covariance) * vocabulary / grown)
    return min(1.0, (grown - less) * bound / vocabulary)


def _output_scale(stack: MomentStack, vocabulary: int, row: float) -> float:
    """What the placement multiplies rows of that squared length of the output projection with."""
    atoms = Atoms(stack.placement.stack.width)
    rows = single(atoms, atoms.add(row / atoms.width, 0.0))
    end = MomentEnd(norms_of(stack.setting.norm, stack.placement.norm_epsilon))
    return float(stack.placement.output_rows(rows, end, vocabulary).coefficients[0])


class _OwnRow(NamedTuple):
    """A token's own input row at the output: its share of the softmax, mean and mean square, and of
    E‖y‖².
    """

    share: Entry
    square: Entry
    along: Entry


def _own_row(stack: MomentStack, model: ModelSetting, row: float, scale: float) -> _OwnRow:
    output = stack.output
    # What is looked up is a multiple of the row, and dropout on it leaves its mean.
    looked_up = stack.atoms.products(0).one * (1 - model.dropout)
    coefficient = output.coefficients[0]
    logit = coefficient * np.sqrt(model.width * looked_up * row) * scale
    # Against V entries whose exponentials have the mean e^(q/2); the rest of the output moves the
    # row's own logit.
    others = math.log(model.vocabulary) + scale**2 * row * output.q / 2
    spread = scale * np.sqrt(row * np.maximum(0.0, output.q - coefficient**2 * looked_up))
    nodes, weights = normal_nodes(24)
    ahead, spread = (np.asarray(part)[..., None] for part in (others - logit, spread))
    shares = 1 / (1 + np.exp(np.clip(ahead - spread * nodes, -700, 700)))
    found = (shares @ weights, shares**2 @ weights, coefficient**2 * looked_up / output.q)
    return _OwnRow(*(found if stack.atoms.places is not None else map(float, found)))
