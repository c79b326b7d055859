"""Norms known by what they do: the output of a scaled input is the same, token by token, however it
is computed.

DyT and Derf, which stand in the place of norms and do not do that, are known by their form.
"""

# N = tokens, D = width
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite, nan, prod
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ...measure.passes import has_arithmetic
from .flow import Flow
from .operations import UNREPEATABLE, Origin, TracedValue, walked

_REDUCING = frozenset({"mean", "sum", "var", "var_mean", "std", "linalg_vector_norm", "norm"})
_ARITHMETIC = _REDUCING | frozenset(
    {
        "pow",
        "square",
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "neg",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "clamp",
        "clamp_min",
        "maximum",
        "abs",
        "gt",
        "ne",
        "where",
        "expand",
        "view",
        "reshape",
        "_unsafe_view",
        "unsqueeze",
        "squeeze",
        "clone",
        "detach",
        "alias",
        "_to_copy",
    }
)
_LARGEST = 24
"""Steps of a norm's arithmetic; LayerNorm written out has about ten."""
_Norm = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class NormFunction:
    """A value that is a norm of another one, before gains."""

    source: int
    kind: Literal["layer", "rms", "tanh", "erf"]
    """layer: the mean is taken away too; tanh and erf: no norm, but a curve of α x for every
    feature on its own.
    """
    epsilon: float
    """Added to the mean square; NaN where a small input is kept from growing in another way."""
    size: float
    """Root mean square of its output: 1, but 1/√D for x / ‖x‖, trained gains aside; NaN of torch's
    layer norm, and of curves."""
    gain: float = 1.0
    """The factor of a normed value within the norm: its size, or its own gain's root mean square; 1
    where not known.
    """
    over: tuple[int, ...] = (-1,)
    """The dimensions of its source that statistics are taken over, counted from the end."""
    keeps_mean: bool = False
    """True where it divides by the deviation about a mean that it does not subtract, x / √(Var x +
    ε).
    """

    @property
    def is_curve(self) -> bool:
        """True where it takes no statistics of its input, so that its output has no fixed size."""
        return self.kind in ("tanh", "erf")


def norm_function(flow: Flow, value: TracedValue) -> NormFunction | None:
    """Returns the norm that a value is, with the earlier value in it; None where it is none."""
    if not value.is_data:
        return None
    if value.op == "native_layer_norm" and value.output == 0:
        (source,) = flow.predecessors[value.number][:1]
        shape = value.args[1]
        epsilon = value.args[4]
        given = [flow.values[n].tensor for n in value.inputs if not flow.values[n].is_data]
        gain = _root_mean_square(given[0]) if given and not given[0].is_meta else 1.0
        return NormFunction(
            source, "layer", float(epsilon), nan, gain, tuple(range(-len(shape), 0))
        )
    if value.op in ("tanh", "erf"):
        # The x of tanh(α x) or erf(α x + s), α and s one trained number each.
        (inner,) = flow.predecessors[value.number]
        shifted = _beside_one_number(flow, inner, "add")
        before = _beside_one_number(flow, inner if shifted is None else shifted, "mul")
        return None if before is None else NormFunction(before, value.op, nan, nan)  # type: ignore[arg-type]
    for norm, x, source, gains in _tried(flow, value):
        with suppress(*UNREPEATABLE):
            if found := _behaviour(norm, x, source):
                return replace(found, gain=found.gain * prod(map(_root_mean_square, gains)))
    return None


def power_of(flow: Flow, value: TracedValue) -> int | None:
    """Returns the power of a token's size with which the output grows of a value that is built like
    a norm; None for a norm, and for other values.

    Dividing by the variance in place of its root leaves -1, multiplying by the root in place of
    dividing 2, taking the mean away and no more 1.
    """
    for norm, x, _, _ in _tried(flow, value):
        with suppress(*UNREPEATABLE):
            if power := _power(norm, x):
                return power
    return None


def _tried(flow: Flow, value: TracedValue) -> Iterator[tuple[_Norm, Tensor, int, list[Tensor]]]:
    """Yields each value that this one may be a norm of: the norm as a function, an input to try it
    with, the value's number, and gains.

    Ones stand for trained gains: where these differ, as of w · x / ‖x‖, tokens do not come out
    equally long. On the meta device there are none of any kind.
    """
    if value.op not in ("mul", "div") or not value.is_data:
        return
    source = flow.dominators[value.number]
    # A mean taken away first belongs to the norm.
    earlier = flow.dominators[source] if source >= 0 and flow.values[source].op == "sub" else -1
    for place in (n for n in (earlier, source) if n >= 0):
        of = flow.values[place].tensor
        alike = of.shape == value.shape and of.numel() and has_arithmetic(of)
        inside = _few_between(flow, place, value.number) if alike else []
        ops = {flow.values[number].op for number in inside}
        if not ops <= _ARITHMETIC or not ops & _REDUCING:
            continue
        x = torch.randn(of.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        beside = {
            n for number in inside for n in flow.values[number].inputs if not flow.values[n].is_data
        }
        own = {
            n: flow.values[n].tensor for n in beside if _is_own_gain(flow.values[n], of.shape[-1])
        }
        ones = {
            n: torch.ones(t.shape, dtype=t.dtype)
            for n in beside
            if (t := flow.values[n].tensor).is_meta
        }
        ones |= {n: torch.ones_like(vector) for n, vector in own.items()}

        def norm(z: Tensor, place: int = place, ones: Mapping[int, Tensor] = ones) -> Tensor:
            return flow.trace.again({**ones, place: z}, value.number)

        yield norm, x.to(of.dtype) if of.is_meta else x.to(of), place, list(own.values())


def _few_between(flow: Flow, source: int, target: int) -> list[int]:
    """Returns the numbers of what lies between a value and one that it dominates, in order, the
    latter's own among them; none where they are too many for a norm.
    """
    way = walked(target, lambda n: () if n == source else flow.predecessors[n])
    # Much may be computed in the meantime that has nothing to do with them.
    found = list(islice(way, _LARGEST + 2))
    return sorted(set(found) - {source}) if len(found) <= _LARGEST + 1 else []


def _power(norm: _Norm, x: Tensor) -> int | None:
    """Returns the power, where every token comes out along itself, or along itself less its
    mean.
    """
    small, large = _odd(norm, 30 * x), _odd(norm, 60 * x)
    before, after = small.norm(dim=-1), large.norm(dim=-1)
    centred = (x - x.mean(-1, keepdim=True)).double()
    along = max(
        float(functional.cosine_similarity(small, of, dim=-1).min()) for of in (x.double(), centred)
    )
    powers = (after / before).log2()
    if not bool(powers.isfinite().all()):
        return None
    power = round(float(powers.mean()))
    steady = bool((powers - power).abs().max() < 1e-2)
    # A multiple of x itself is nothing that was meant for a norm.
    meant = power in (-3, -1, 2, 3) or (power == 1 and _close(norm(x + 30), norm(x)))
    return power if steady and _is_by_token(norm, x) and along > 1 - 1e-3 and meant else None


def _is_by_token(norm: _Norm, x: Tensor) -> bool:
    """Tells whether a change of the first token leaves all others as they are."""
    other = x.clone()
    other.view(-1, x.shape[-1])[0] += 10
    return torch.equal(
        norm(other).reshape(-1, x.shape[-1])[1:], norm(x).reshape(-1, x.shape[-1])[1:]
    )


def _root_mean_square(vector: Tensor) -> float:
    return float(vector.detach().cpu().double().square().mean().sqrt())


def _beside_one_number(flow: Flow, number: int, op: str) -> int | None:
    """Returns the value that is added to one trained number, or multiplied with it; None where the
    operation is a different one.
    """
    value, before = flow.values[number], flow.predecessors[number]
    given = [flow.values[n] for n in value.inputs if not flow.values[n].is_data]
    numbers = [one.tensor.numel() for one in given if one.origin == Origin.TRAINABLE]
    if value.op != op or len(before) != 1 or len(given) != 1 or numbers != [1]:
        return None
    return before[0] if flow.values[before[0]].shape == value.shape else None


def _is_own_gain(value: TracedValue, width: int) -> bool:
    tensor = value.tensor
    vector = tensor.ndim > 0 and tensor.numel() == tensor.shape[-1] == width > 1
    real = has_arithmetic(tensor) and not tensor.is_meta
    return vector and real and value.origin == Origin.TRAINABLE


def _behaviour(norm: _Norm, x: Tensor, source: int) -> NormFunction | None:
    large = 30 * x
    # A gain and a shift may be inside: the odd part is free of shifts.
    y = _odd(norm, large)
    rows = y.square().mean(-1).sqrt()
    size = float(rows.mean())
    if not size or not isfinite(size) or not _close(_odd(norm, 2 * large), y):
        return None
    moved = large + 30
    z, by_token = _odd(norm, moved), _is_by_token(norm, large)
    keeps_mean = by_token and _keeps_mean(y, moved, z)
    # Every token comes out equally long, its mean aside: dividing by a sum is no norm.
    rows = _deviations(y) if keeps_mean else rows
    if not by_token or not _close(rows, rows.mean().expand(rows.shape)):
        return _over_others(norm, large, y, source)
    kind: Literal["layer", "rms"] = "layer" if _close(z, y) else "rms"
    # Of two features, standardised ones are equally long by any measure, so that only here they
    # are.
    standard = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0)
    size = float(rows.mean())
    epsilon = _epsilon(norm, standard, size)
    return NormFunction(source, kind, epsilon, size, size, keeps_mean=keeps_mean)


def _keeps_mean(y: Tensor, moved: Tensor, z: Tensor) -> bool:
    """Tells whether z, the output for tokens with a mean, is along them and of the same deviation
    as y, the output for tokens without one; and so longer.
    """
    deviations = _deviations(z)
    along = functional.cosine_similarity(z, moved.double(), dim=-1)
    grown = z.square().mean(-1) / deviations.square()
    is_along = float(along.min()) > 1 - 1e-3 and float(grown.min()) > 1.1
    return is_along and _close(_deviations(y), deviations)


def _deviations(x: Tensor) -> Tensor:
    return x.std(-1, correction=0)


def _over_others(norm: _Norm, x: Tensor, y: Tensor, source: int) -> NormFunction | None:
    """Returns a norm over other dimensions than the last, or over several; None of anything else.

    What is multiplied along a dimension is lost in it, unless statistics are taken over that
    dimension.
    """
    over = tuple(at for at in range(-x.ndim, 0) if not _close(_odd(norm, _along(x, at)), y))
    lengths = y.square().mean(over).sqrt()
    # Over everything no length stands beside another, but that of a second input.
    second = _odd(norm, x * x.abs()).square().mean(over).sqrt()
    if not over or over == (-1,) or not _close(second, lengths):
        return None
    # A gain for every feature may be inside.
    beside = [at for at in range(-x.ndim, 0) if at not in over and x.shape[at] > 1]
    level = (
        lengths.mean(tuple(range(lengths.ndim - 1)), keepdim=True)
        if -1 in beside
        else lengths.mean()
    )
    if not _close(lengths, level.expand(lengths.shape)):
        return None
    kind: Literal["layer", "rms"] = "layer" if _close(norm(x + 30), norm(x)) else "rms"
    size = float(lengths.mean())
    return NormFunction(source, kind, nan, size, size, over)


def _along(x: Tensor, dimension: int) -> Tensor:
    """Multiplied by numbers from 1 to 3 that rise along a dimension."""
    shape = [1] * x.ndim
    shape[dimension] = -1
    return x * torch.linspace(1, 3, x.shape[dimension]).to(x).reshape(shape)


def _epsilon(norm: _Norm, x: Tensor, size: float) -> float:
    """Finds the number that a norm adds to the mean square, from multiples of x (every token's is
    1) so small that it shows.
    """
    found = [1e-6]
    for _ in range(4):
        # The input whose power is the epsilon loses a factor √2.
        small = x * found[-1] ** 0.5
        ratio = float(_odd(norm, small).square().mean().sqrt()) / size
        found.append(max(found[-1] * (ratio**-2 - 1), 1e-14) if 0 < ratio < 1 else 1e-14)
    if found[-1] <= 1e-13 and found[-2] <= 1e-13:
        return 0.0
    return float(f"{found[-1]:.2g}") if abs(found[-1] / found[-2] - 1) < 0.1 else nan


def _odd(norm: _Norm, x: Tensor) -> Tensor:
    return (norm(x) - norm(-x)).double() / 2


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(
        a.double(), b.double(), rtol=1e-2, atol=1e-2 * float(b.double().abs().mean())
    )
