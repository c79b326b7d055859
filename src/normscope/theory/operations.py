"""The operations of a formula on moments, sums excepted: norms, attention over depth, unit vectors
and parameters.

A formula's numbers are read here too: parameters at their initial values, numbers that depend on
the token at their means.

The equations are T1 to T3 of docs/theory.md.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from ..placement.base import Initial
from ..placement.operations import (
    Number,
    beside,
    by_head,
    connect,
    joined,
    mix,
    stopped,
    unit,
    weighed_sum,
)
from .coefficients import Stretch
from .mixing import Entry, Products, between, mean_of, root, squared, vanishes
from .moments import Followed, Moments, Unpredictable
from .squashing import Erf, SquashingNorms, Tanh

SMALL = 0.25
"""The largest standard deviation of a token's logit for which its mean is taken. σ then scatters by
a sixteenth about ½, and what the squares of such numbers add to a second moment is below two
hundredths."""


_TAKEN_OF_SCATTER = 0.5
"""The share of the relative variance of a norm's square that E‖g‖² is taken to grow by: fitted on
the root mean square over draws of gradients of deep Post-LN, ResiDual and B2T stacks, which all of
it overstates. Equation T3.
"""


class InitialNumber(float):
    """A parameter of the formula at its initial value: a number, or a tensor of which all entries
    are that number.

    std: of the distribution that it is drawn from, of which the mean alone counts wherever it
    multiplies.
    """

    shape: tuple[int, ...]
    std: float

    def __new__(
        cls, value: float, shape: tuple[int, ...] = (), std: float = 0.0
    ) -> "InitialNumber":
        made = super().__new__(cls, value)
        made.shape, made.std = shape, std
        return made

    def __getitem__(self, index: int) -> "InitialNumber":
        """Returns an entry of a parameter, which has the same initial value. Equation T1."""
        if not self.shape or not 0 <= index < self.shape[0]:
            raise IndexError(f"a parameter of shape {self.shape} has no entry {index}")
        return InitialNumber(self, self.shape[1:], self.std)


_InitialNumbers = tuple[Any, ...]
"""A parameter whose entries start from different numbers: its entries, or its rows."""


class _FollowedNumber(InitialNumber, Followed):
    """A parameter of the formula whose updates are followed wherever it multiplies a value.

    What is computed from it first, such as 1 less it, is a number that stays.
    """


def followed(value: InitialNumber, number: Hashable) -> _FollowedNumber:
    """Returns the same number, belonging to the parameter of that name. Equation T24."""
    made = _FollowedNumber(value, value.shape, value.std)
    made.number, made.entries = number, math.prod(value.shape)
    return made


def first_values(
    initial: Initial, shape: tuple[int, ...] = (), std: float = 0.0
) -> InitialNumber | _InitialNumbers:
    """Returns a parameter as theory reads it: one number where all entries start alike, else a
    tuple of them. Equation T1.
    """
    if isinstance(initial, tuple) and len(shape) == 1:
        return tuple(map(float, initial))
    return _first_values(initial, shape, std)


@lru_cache(maxsize=64)
def _first_values(
    initial: Initial, shape: tuple[int, ...], std: float
) -> InitialNumber | _InitialNumbers:
    """Returns the same for parameters that are asked for by every block. Equation T1."""
    if isinstance(initial, tuple):
        return tuple(first_values(entry, shape[1:], std) for entry in initial)
    return InitialNumber(initial, shape, std)


@connect.register(Moments)
@connect.register(float)
def _connect(
    x: Moments | float,
    weight: InitialNumber,
    bias: InitialNumber | _InitialNumbers | float = 0.0,
    scale: float = 1.0,
    *,
    name: str = "",
) -> tuple[float, ...]:
    """Returns the biases, which are what numbers of a token are on average.

    Exactly so where the weight starts from 0. Where numbers of a token, which stand for their mean
    0, are read in turn, the result scatters even less. Raises Unpredictable where that mean is not
    0, and where the weight is drawn so wide that logits scatter: their standard deviation is std ·
    √(d q).

    Equation T1.
    """
    rows, *_, width = weight.shape
    if isinstance(x, Moments) and (weight.std or weight):
        most = x.one.max() if isinstance(x.one, np.ndarray) else x.one
        # The standard deviation of a logit over draws of its weights.
        scatter = abs(scale) * math.sqrt(width * most) * math.hypot(weight.std, weight)
        if scatter > SMALL:
            raise Unpredictable(
                "the numbers that a token's streams are weighted with are drawn with a standard "
                f"deviation of {scatter:.2g} over {width:,} features: beyond {SMALL:g} they differ "
                "too much from token to token for theory to follow, and this placement cannot be "
                "predicted"
            )
    elif not isinstance(x, Moments) and x:
        raise Unpredictable(
            f"numbers of a token that are {x:.2g} on average are not followed any further"
        )
    return bias if isinstance(bias, tuple) else (float(bias),) * rows


Norm = Literal["layer-norm", "rms-norm", "dyt", "derf"]
NORMS: tuple[Norm, ...] = ("layer-norm", "rms-norm", "dyt", "derf")
CENTRING: frozenset[str] = frozenset({"layer-norm"})
"""The norms of a model that take the mean over features off."""
_SQUASHING: dict[str, Erf | Tanh] = {"dyt": Tanh(), "derf": Erf()}


class MomentNorms:
    """Normalises moments. Before training a norm's gains are 1, so that all names give the same
    map.

    centres: True for LayerNorm, which takes the mean over features off; RMSNorm and its like divide
    by the RMS alone. ScaleNorm's gain is √d at first, so that it is RMSNorm here.
    """

    def __init__(self, epsilon: float, *, centres: bool) -> None:
        self.epsilon, self.centres = epsilon, centres

    def __call__(self, x: Moments, /, *, groups: int | None = None) -> Moments:
        """Returns x / √(q + ε), of LayerNorm without the parts that are the same in every feature;
        a value of 0 stays 0. Equation T2.
        """
        # Streams that are one value are normed one by one.
        known = x.atoms.normed.get((x, self))
        if known is None:
            known = without_mean(x) if self.centres and x.atoms.constant else x
            if not vanishes(known.one):
                known = _divided(known, root(known.one + self.epsilon))
            x.atoms.normed[x, self] = known
        return known

    def __getattr__(self, name: str) -> Callable[..., Moments]:
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__[name] = self  # for the next time
        return self


def without_mean(x: Moments) -> Moments:
    """Returns the value less what is the same in every feature. Equation T2."""
    if x.centred:
        return x
    if x.lane is None:
        return x if x.size - 1 not in x.atoms.constant else x * 0.0
    # Taken off part by part, so that the value stays on its lane.
    one = x.one
    two = x.two
    apart = x.apart
    found = False
    for index in x.atoms.constant:
        if index >= x.size:
            continue
        coefficient = x.lane.forward[index] * x.scale
        if vanishes(coefficient):
            continue
        found = True
        square, pair = squared(coefficient)
        part = x.atoms.products(index)
        one = one - square * part.one
        two = two - pair * part.two
        apart = apart - pair * part.apart
    if not found:
        return x
    return Moments(
        x.atoms,
        Stretch(x.lane, x.size, x.scale, x.back),
        Products(between(0.0, one, math.inf), two, apart),
        x.spread,
        x.differing,
        centred=True,
    )


def _divided(x: Moments, divisor: Entry) -> Moments:
    """Returns x over its own size, which is √(q + ε) on average.

    A gradient is divided by the size that was drawn, and the mean of 1/s² is larger than one over
    the mean of s² by the relative variance of s². Over a deep stack these add up to a norm of the
    gradient that scatters from draw to draw. Half of that variance is taken, which follows the root
    mean square of the norm over draws.

    Equations T2 and T3.
    """
    if x.lane is None:
        x.atoms.normed_parts.add(x.size - 1)
    scatter = x.spread / (x.one * x.one * x.atoms.scatter_width)
    drawn = root(1 + _TAKEN_OF_SCATTER * scatter)
    made = x.times(1 / divisor, drawn / divisor, normed=True)
    if x.atoms.draws:
        one, two, _ = x.mean
        made.differing = x.differing.normed(mean_of(scatter), two / one)
    return made


def norms_of(norm: Norm, epsilon: float) -> MomentNorms | SquashingNorms:
    """Returns the norms of a formula that is read with that norm. Equations T2 and T16."""
    if norm in _SQUASHING:
        return SquashingNorms(_SQUASHING[norm])
    return MomentNorms(epsilon, centres=norm in CENTRING)


@mix.register
def _mix(
    query: InitialNumber,
    values: Sequence[Moments],
    key: Callable[[Moments], Moments],
    value: Callable[[Moments], Moments] | None = None,
) -> Moments:
    """Returns attention over depth, which is the plain mean with a query of 0, where it starts.

    Raises Unpredictable for a query that is not 0: the weights would depend on the token.

    Equation T1.
    """
    if float(query) != 0.0:
        raise Unpredictable(
            "attention over depth is predicted for a query of 0, where it starts, got "
            f"{float(query)}"
        )
    if isinstance(query, Followed):
        raise Unpredictable(
            "attention over depth weighs values by a query that the first update moves, which "
            "theory does not follow: what an update changes cannot be predicted for this placement"
        )
    of = value or (lambda x: x)
    if len(values) == 1:
        return of(values[0])
    return values[0].atoms.total(tuple(values), of) / len(values)


@weighed_sum.register
def _weighed_sum(first: Moments, values: Sequence[Moments], weights: Sequence[Number]) -> Moments:
    """Returns Σ_k w_k x_k over a history of values. Equation T1."""
    # Most weights of a history start at 0: what such a value adds is looked for only where the
    # weight is to move.
    pairs = []
    for value, weight in zip(values, weights, strict=True):
        if weight or weight.__class__ is not float:
            pairs.append((value, weight))
    if all(weight.__class__ is float and not value.normed for value, weight in pairs):
        # Streams that start as one value stay one for long. The sums are exact, so that no order
        # makes two of them.
        by_value: dict[Moments, list[float]] = {}
        for value, weight in pairs:
            by_value.setdefault(value, []).append(weight)
        pairs = [(value, math.fsum(of)) for value, of in by_value.items()]
    parts: list[Moments] = [value * weight for value, weight in pairs] or [first * 0.0]
    return sum(parts[1:], parts[0])


@unit.register
def _unit(x: Moments) -> Moments:
    """Returns x / ‖x‖: a norm without √d. A value of 0 stays 0, as on tensors. Equation T2."""
    # A value that is 0 stays 0, as on tensors.
    return x if vanishes(x.one) else _divided(x, root(x.one * x.atoms.width))


@by_head.register
def _by_head(x: Moments, numbers: InitialNumber) -> Moments:
    """Returns the value times numbers of its heads, which all start alike. Equation T1."""
    return x * numbers


@stopped.register
def _stopped(x: Moments) -> Moments:
    """Returns the value, of which no gradient comes back. Equation T12."""
    return x.times(1.0, 0.0, normed=x.normed)


@beside.register
def _beside(x: Moments, *others: Moments) -> Moments:
    """Returns the first of several values side by side, as large as their root mean square: numbers
    are computed from them, which have no direction. Equation T2.
    """
    mean = sum(part.one for part in (x, *others)) / (1 + len(others))
    if vanishes(x.one):
        return x
    # As large as the root mean square of all.
    factor = root(mean / x.one)
    return x.times(factor, factor, normed=x.normed)


@joined.register
def _joined(x: Moments, *others: Moments, epsilon: float = 1e-6) -> Moments:
    """Returns the first of several streams over the RMS of all: numbers are computed from them,
    which have no direction. Equation T2.
    """
    if vanishes(x.one):
        return x
    # A history is joined anew for every mean of it, and values known by their sum are known by what
    # they are.
    known = x.atoms.normed.get((x, *others, epsilon))
    if known is None:
        mean = sum(part.one for part in (x, *others)) / (1 + len(others))
        known = x.atoms.normed[x, *others, epsilon] = _divided(x, root(mean + epsilon))
    return known
