"""How large initial weights are beside what a placement's source draws, and which of equal formulas they speak for."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean, pstdev
from typing import Literal

from ...placement import Placement, Site, StackShape, named
from ..record import Stack
from .matrices import Matrices, Matrix, matrices_of, shape_of
from .rules import Patient
from .vectors import at_initialisation

Role = Literal["query", "key", "value", "output", "ffn_in", "ffn_out"]
"""The words in which `Placement.gain` is asked; of `query` and `key` it is not known which is which."""
_PROJECTIONS: tuple[Role, ...] = ("query", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """A matrix of a sub-layer beside what a placement wants of it."""

    block: int
    role: Role
    matrix: Matrix
    wanted: float
    """The gain of the placement."""

    @property
    def ratio(self) -> float:
        """Gain over Glorot's scale, as it was found and as it was wanted, divided."""
        return self.matrix.glorot_gain / self.wanted


Fits = Callable[[Weighed], bool]


def weighed(patient: Patient, number: int, placement: type[Placement], fits: Fits) -> list[Weighed]:
    """Every matrix of the stack's sub-layers whose purpose can be told, with the gain that a placement gives it.

    number: of the stack. fits: what counts as agreement; of the three projections of attention it decides which one is
    the value, where the usual order (query, key, value) does not fit and another one does.

    Raises ValueError where the placement is not defined for such a model.
    """
    shape = shape_of(patient.stacks, number)
    made = placement(shape)
    found: list[Weighed] = []
    for block, matrices, site in _sites(patient, number, shape):
        for role, matrix in _roles(matrices, site):
            found.append(Weighed(block=block, role=role, matrix=matrix, wanted=made.gain(role, site)))
        found += _projections(matrices, site, made, fits)
    return found


def _sites(patient: Patient, number: int, shape: StackShape) -> Iterator[tuple[int, Matrices, Site]]:
    stack = patient.stacks[number]
    for sublayer in stack.sublayers:
        matrices = matrices_of(patient, sublayer, stack.width)
        if matrices is not None and sublayer.block > 0 and sublayer.kind != "convolution" and sublayer.kind != "mixer":
            yield sublayer.block, matrices, Site(kind=sublayer.kind, block=sublayer.block, stack=shape)


def _roles(matrices: Matrices, site: Site) -> Iterator[tuple[Role, Matrix]]:
    yield ("ffn_out" if site.kind == "feed_forward" else "output"), matrices.last
    for matrix in matrices.first:
        yield "ffn_in", matrix


def _projections(matrices: Matrices, site: Site, placement: Placement, fits: Fits) -> list[Weighed]:
    orders = []
    for roles in permutations(_PROJECTIONS):
        orders.append(
            [
                Weighed(block=site.block, role=role, matrix=matrix, wanted=placement.gain(role, site))
                for role, matrix in zip(roles, matrices.projections, strict=False)
            ]
        )
    return next((order for order in orders if all(fits(one) for one in order)), orders[0])


_CLEARLY = 0.15
"""Root mean square of log size about what a placement draws: a closer one fits, and must be twice as close."""


def told_by_initialisation(stack: Stack, patient: Patient) -> str:
    """The name, of `stack.placement` and those that are built on it and change its weights, whose weights these are.

    GPT-2's formula is Pre-LN's, and DS-Init's is Post-LN's; they differ in how the sizes of weights go with block and
    role. Sizes are compared up to one factor for the whole stack and one of the usual base scales: the same for all
    matrices, Glorot's, or 1/√inputs. Where weights were trained, or speak for none clearly: that of the stack.
    """
    also = [s.also for s in stack.sublayers if s.placement == stack.placement]
    if not stack.placement or not also or not at_initialisation(patient):
        return stack.placement
    number = patient.stacks.index(stack)
    own = named(stack.placement)
    built_on_it = [name for name in also[0] if issubclass(named(name), own)]
    errors = {name: _misfit(patient, number, named(name)) for name in (stack.placement, *built_on_it)}
    best = min(errors, key=lambda name: errors[name])
    clear = errors[best] < _CLEARLY and errors[best] < errors[stack.placement] / 2
    return best if clear else stack.placement


def _misfit(patient: Patient, number: int, placement: type[Placement]) -> float:
    """Standard deviation of the log of found over wanted size, at the base scale at which it is smallest."""
    try:
        ones = weighed(patient, number, placement, lambda one: True)
    except ValueError:
        return math.inf
    logs = [(math.log(one.matrix.deviation / one.wanted), one.matrix) for one in ones if one.matrix.deviation > 0]
    if len(logs) < 2 or len(logs) < len(ones):
        return math.inf
    return min(pstdev(size - scale(matrix) for size, matrix in logs) for scale in _BASE_SCALES)


_BASE_SCALES: tuple[Callable[[Matrix], float], ...] = (
    lambda matrix: 0.0,
    lambda matrix: -0.5 * math.log(matrix.inputs + matrix.outputs),
    lambda matrix: -0.5 * math.log(matrix.inputs),
    lambda matrix: -0.5 * math.log(matrix.outputs),
)
"""Log size up to a constant. Both sides are tried as inputs, for some libraries keep matrices transposed."""


def typical(sizes: list[float]) -> float:
    """The geometric mean."""
    return math.exp(fmean(map(math.log, sizes)))
