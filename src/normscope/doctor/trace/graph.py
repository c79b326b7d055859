"""A recorded forward pass with its norms and means over depth, and the steps that only add, scale
or norm.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from math import nan
from typing import Any, Literal

import torch
from torch import Tensor

from ...measure.passes import euclidean_norm
from .connections import connections
from .flow import Flow
from .lanes import token_weights
from .mixtures import blends, mixture_of, stacked_sums
from .norms import NormFunction, norm_function
from .operations import REARRANGING, Origin, Ref, Trace, TracedValue, walked


@dataclass(frozen=True, slots=True)
class Factor:
    """The factor of a value: a number, or one for each feature (then `value` is their mean)."""

    value: float
    """NaN on the meta device, where parameters and buffers hold none."""
    origin: Origin = Origin.CONSTANT
    vector: bool = False
    doubly_stochastic: bool | None = None
    """True where it is of a matrix whose rows and columns sum to 1; None where that is not known,
    or it is of none.
    """
    root_mean_square: float | None = field(default=None, compare=False)
    """The root mean square of a vector; None for one number, and where it is not known."""

    @property
    def is_constant(self) -> bool:
        """True where it is one number that nothing changes."""
        return self.origin == Origin.CONSTANT and not self.vector

    @property
    def size(self) -> float:
        """The number, or a vector's root mean square: what it multiplies the length of independent
        values with.
        """
        return self.value if self.root_mean_square is None else self.root_mean_square

    def __mul__(self, other: "Factor") -> "Factor":
        doubly = (
            self.doubly_stochastic if other.doubly_stochastic is None else other.doubly_stochastic
        )
        vector, size = self.vector or other.vector, self.size * other.size
        origin = max(self.origin, other.origin)
        return Factor(self.value * other.value, origin, vector, doubly, size if vector else None)


@dataclass(frozen=True, slots=True)
class _GraphStep:
    """A value as a light function of others, token by token: the same, a sum, a multiple, normed,
    or a mean.

    Of several streams in one tensor, also one value that is made of them, they of one value, and
    they of each other.
    """

    kind: Literal["same", "sum", "scale", "norm", "mix", "collapse", "connect", "expand"]
    sources: tuple[int, ...]
    factors: tuple[Factor, ...] = ()
    """One for each source of a sum or a scale."""


class Graph(Flow):
    """A trace with all that can be asked of it."""

    def __init__(self, trace: Trace) -> None:
        self.stacked = stacked_sums(trace)
        super().__init__(trace)
        self.norms: dict[int, NormFunction] = {}
        self.norms_of: dict[int, list[int]] = {}
        """The norms that each value goes into."""
        for value in self.values:
            if norm := norm_function(self, value):
                self.norms[value.number] = norm
                self.norms_of.setdefault(norm.source, []).append(value.number)
        self.mixtures = {
            v.number: found for v in self.values if (found := mixture_of(self, v, self.norms))
        }
        self.mixtures_of: dict[int, list[int]] = {}
        """The means over depth that each value goes into."""
        for number, mixture in self.mixtures.items():
            for source in mixture.sources:
                self.mixtures_of.setdefault(source, []).append(number)
        self.connections = connections(self, self.norms)
        self.token_weights = {} if self.connections.made else token_weights(self, self.norms)
        self.blends = blends(self)
        self._steps: dict[int, _GraphStep | None] = {}
        self._parameters: dict[int, tuple[str, ...]] = {}
        self._magnitudes: dict[int, float] = {}

    def step(self, number: int) -> _GraphStep | None:
        """Returns the value as a light step; None where it is anything else."""
        if number not in self._steps:
            value = self.values[number]
            self._steps[number] = self._light(value) if value.is_data else None
        return self._steps[number]

    def sources(self, number: int) -> tuple[int, ...]:
        """Returns the values that a light step takes; empty for a value that is none."""
        step = self.step(number)
        return step.sources if step else ()

    def parameters(self, number: int) -> tuple[str, ...]:
        """Names of those that a value is made with beside data, made into something else first or
        not.
        """
        if number not in self._parameters:
            value = self.values[number]
            own = value.names if value.origin in (Origin.TRAINABLE, Origin.CONSTANT) else ()
            beside = [
                name
                for n in value.inputs
                if not self.values[n].is_data
                for name in self.parameters(n)
            ]
            self._parameters[number] = tuple(dict.fromkeys([*own, *beside]))
        return self._parameters[number]

    def magnitude_of(self, number: int) -> float:
        """‖x‖ of all entries of a value, summed in float64.

        A weight's is asked for by several measurements, as that of queries and keys in one matrix.
        """
        if number not in self._magnitudes:
            self._magnitudes[number] = euclidean_norm(self.values[number].tensor)
        return self._magnitudes[number]

    def under(self, number: int, *kinds: str) -> int:
        """Follows a value down through steps of these kinds alone, each with one source, and
        returns the value below.
        """
        while (step := self.step(number)) is not None and step.kind in kinds:
            (number,) = step.sources
        return number

    def after(self, number: int, *kinds: str) -> Iterator[int]:
        """Returns all that is made from a value by steps of these kinds alone."""

        def onwards(at: int) -> list[int]:
            return [
                n
                for n in self.consumers[at]
                if (step := self.step(n)) is not None and step.kind in kinds
            ]

        return islice(walked(number, onwards), 1, None)

    def _light(self, value: TracedValue) -> _GraphStep | None:
        part = self._of_a_part(value)
        if part is not None:
            return part
        if value.number in self.blends:
            return self._blended(value)
        # Half precision is often guarded by bounds that nothing reaches.
        if self._is_unreached_bound(value):
            return _GraphStep("same", value.inputs[:1])
        if value.number in self.token_weights:
            x, weight = self.token_weights[value.number]
            return _GraphStep("scale", (x,), (Factor(self._mean(value, weight), Origin.DATA),))
        return self._operation(value)

    def _of_a_part(self, value: TracedValue) -> _GraphStep | None:
        """Returns the step of a value that was found to be part of something larger: a norm, a mean
        over depth, a connection of streams, or a sum of stacked values.
        """
        number = value.number
        if number in self.norms:
            return _GraphStep("norm", (self.norms[number].source,))
        if number in self.mixtures:
            return _GraphStep("mix", self.mixtures[number].sources)
        if connection := self.connections.made.get(number):
            return _GraphStep(connection.kind, (connection.source,))
        if number in self.connections.spread:
            return _GraphStep("sum", self.connections.spread[number], (Factor(1.0), Factor(1.0)))
        if added := self.stacked.get(number):
            factors = tuple(Factor(weight, added.origin) for weight in added.weights)
            return _GraphStep("sum", added.pieces, factors)
        return None

    def _blended(self, value: TracedValue) -> _GraphStep:
        """Returns a sum whose shares a gate tells: (1 - gate) of the first, gate of the second."""
        blend = self.blends[value.number]
        gate = self._mean(value, blend.gate)
        shares = (
            Factor(1 - gate, Origin.DATA, vector=True),
            Factor(gate, Origin.DATA, vector=True),
        )
        return _GraphStep("sum", (blend.first, blend.second), shares)

    def _mean(self, value: TracedValue, weight: int) -> float:
        """Returns the mean of what weighs a value; NaN on the meta device."""
        if value.tensor.is_meta:
            return nan
        return float(self.values[weight].tensor.detach().float().mean())

    def _is_unreached_bound(self, value: TracedValue) -> bool:
        return (
            value.op == "clamp"
            and not value.tensor.is_meta
            and torch.equal(value.tensor, self.values[value.inputs[0]].tensor)
        )

    def _operation(self, value: TracedValue) -> _GraphStep | None:
        """Returns the step of one operation by itself: a rearrangement, a sum, a multiple, or a
        mask that the pass drew.
        """
        before = self.predecessors[value.number]
        args = value.args
        kwargs = value.kwargs
        numel = value.tensor.numel()
        if (
            any(self.values[n].tensor.numel() != numel for n in before)
            or not value.tensor.is_floating_point()
        ):
            return None
        if len(before) == 1 and value.op in REARRANGING:
            return _GraphStep("same", (before[0],))
        if value.op == "neg":
            return _GraphStep("scale", (before[0],), (Factor(-1.0),))
        if value.op in ("add", "sub") and len(args) == 2:
            sign = float(kwargs.get("alpha", 1)) * (-1 if value.op == "sub" else 1)
            return self._sum(args, (Factor(1.0), Factor(sign)))
        # A mask that the pass drew leaves data as it is, in its mean.
        if value.op == "mul" and self._is_drawn_mask(value):
            return _GraphStep("same", (before[0],))
        if value.op in ("mul", "div") and len(args) == 2 and len(before) == 1 and not kwargs:
            return self._scale(value.op, args, before[0])
        return None

    def _is_drawn_mask(self, product: TracedValue) -> bool:
        """Tells whether a product is with one mask that dropout drew, and that is divided by the
        share that it keeps.
        """
        masks = [self.values[n] for n in product.inputs if not self.values[n].is_data]
        return (
            len(masks) == 1
            and masks[0].op == "div"
            and any(self.values[n].op == "bernoulli" for n in masks[0].inputs)
        )

    def _sum(self, args: tuple[Any, ...], factors: tuple[Factor, Factor]) -> _GraphStep | None:
        data = [
            (arg.number, factor)
            for arg, factor in zip(args, factors, strict=True)
            if isinstance(arg, Ref) and self.values[arg.number].is_data
        ]
        if len(data) == 2:
            return _GraphStep(
                "sum", tuple(number for number, _ in data), tuple(factor for _, factor in data)
            )
        ((number, factor),) = data
        # Adding what is the same for every input moves the stream, but is no part of its wiring.
        return (
            _GraphStep("same", (number,))
            if factor.value == 1
            else _GraphStep("scale", (number,), (factor,))
        )

    def _scale(self, op: str, args: tuple[Any, ...], data: int) -> _GraphStep | None:
        is_data = [isinstance(arg, Ref) and arg.number == data for arg in args]
        if sum(is_data) != 1 or (op == "div" and not is_data[0]):
            return None
        factor = self._factor(
            args[1 - is_data.index(True)], self.values[data].tensor, power=-1 if op == "div" else 1
        )
        if factor is None:
            return None
        if op == "div":
            factor = replace(factor, value=1 / factor.value if factor.value else float("inf"))
        return _GraphStep("scale", (data,), (factor,))

    def _factor(self, multiplier: Any, of: Tensor, power: int) -> Factor | None:
        """Returns the factor of `of`; power: -1 where the root mean square is that of a divisor."""
        if not isinstance(multiplier, Ref):
            return Factor(float(multiplier)) if isinstance(multiplier, int | float) else None
        value = self.values[multiplier.number]
        size = value.tensor.numel()
        if value.tensor.is_meta and (size == 1 or size == value.shape[-1] == of.shape[-1]):
            return Factor(nan, max(value.origin, Origin.BUFFER), vector=size != 1)
        if value.tensor.is_complex():
            return None
        if size == 1:
            return Factor(float(value.tensor.detach()), value.origin)
        if size == value.shape[-1] == of.shape[-1]:
            vector = value.tensor.detach()
            root_mean_square = float(vector.cpu().double().pow(power).square().mean().sqrt())
            return Factor(float(vector.float().mean()), value.origin, True, None, root_mean_square)
        return None
