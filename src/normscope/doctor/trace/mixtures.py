"""Means over depth, known by what they do: softmax weights over earlier values, for every token on its own."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .flow import STACKING, Flow, rearranged
from .operations import TracedValue

SOFTMAX = frozenset({"_softmax", "_safe_softmax"})
FUSED = "scaled_dot_product"
"""In the name of every operation that computes scores, softmax and mean in one: queries, keys and values go in."""
_WEIGHING = frozenset({"bmm", "mm", "mul", "sum", "unbind"})
_LARGEST = 100
"""Operations between the stacked values and their mean."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """A value that is a weighted mean of others of its size; the weights are positive and add up to 1."""

    sources: tuple[int, ...]
    weights: int
    """Number of the softmax, or of the operation that computes softmax and mean in one."""
    by_parameter: bool
    """Whether the weights are a softmax over products of the values with one trained vector, and nothing else."""
    key_norms: int
    """How many norms the values pass before these products."""
    normed: bool = False
    """Whether it is the mean of x / RMS(x) of each of its sources x, rather than of x."""


def mixture_of(flow: Flow, value: TracedValue, norms: Container[int]) -> Mixture | None:
    """What mean of which earlier values this is; None where it is none.

    norms: the numbers of the values that are norms.
    """
    if not (value.op in _WEIGHING or _is_fused(value)) or not value.is_data or not value.tensor.is_floating_point():
        return None
    stacked = flow.dominators[value.number]
    while stacked >= 0 and flow.values[stacked].op not in STACKING and value.number - stacked <= _LARGEST:
        stacked = flow.dominators[stacked]
    if stacked < 0 or flow.values[stacked].op not in STACKING or value.number - stacked > _LARGEST:
        return None
    size = value.tensor.numel()
    sources = _sources(flow, stacked, size)
    inside = flow.between(stacked, value.number)[1:]
    softmaxes = [n for n in inside if flow.values[n].op in SOFTMAX or _is_fused(flow.values[n])]
    if not sources or len(softmaxes) != 1:
        return None
    (weights,) = softmaxes
    if any(n in norms for n in flow.between(weights, value.number)):
        return None  # a norm of the mean, or what multiplies that
    normed = _normed(flow, value, sources)
    if normed is None:
        return None
    keys = flow.between(stacked, weights)[1:]
    return Mixture(
        sources=tuple(sources),
        weights=weights,
        by_parameter=_by_parameter(flow, keys, flow.values[sources[0]].shape[-1]),
        key_norms=sum(n in norms for n in keys),
        normed=normed,
    )


def _is_fused(value: TracedValue) -> bool:
    return FUSED in value.op and value.call is not None and value.call.output == 0


def _sources(flow: Flow, stacked: int, size: int) -> list[int]:
    """What was put into a stack, piece by piece or in stacks of its own, each piece of this size; empty of others."""
    found: list[int] = []
    for number in flow.values[stacked].inputs:
        if not flow.values[number].tensor.numel():
            # A stack often starts from an empty one.
            continue
        inner = rearranged(flow, number, any_size=True)
        pieces = [number] if flow.values[number].is_data and flow.values[number].tensor.numel() == size else []
        if flow.values[inner].op in STACKING:
            pieces = _sources(flow, inner, size) or pieces
        if not pieces:
            return []
        found += pieces
    return found


def _normed(flow: Flow, value: TracedValue, sources: Sequence[int]) -> bool | None:
    """Whether the value is z / RMS(z) where z takes the place of every source; None where it is neither this nor z."""
    if value.tensor.is_meta:
        return None
    like = flow.values[sources[0]].tensor
    generator = torch.Generator().manual_seed(0)
    # Its tokens are of many sizes, so that a norm shows.
    z = torch.randn(like.shape, generator=generator, dtype=torch.float64)
    z = (z * (0.5 + torch.rand((*like.shape[:-1], 1), generator=generator, dtype=torch.float64))).to(like)
    # Of different sources each has its own shape in the stack.
    held = {n: z.reshape(flow.values[n].shape) for n in sources}
    try:
        mean = flow.trace.again(held, value.number).reshape(z.shape)
    except (ValueError, RuntimeError):
        return None
    if _close(mean, z):
        return False
    return True if _close(mean, torch.nn.functional.rms_norm(z, z.shape[-1:])) else None


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-2)


def _by_parameter(flow: Flow, keys: list[int], width: int) -> bool:
    """Whether keys meet trained vectors of their width, and the weights hang on nothing else."""
    products = [flow.values[n] for n in keys if flow.is_product(flow.values[n]) or _is_fused(flow.values[n])]
    given = [flow.values[n] for value in products for n in value.inputs if not flow.values[n].is_data]
    # One query is often repeated for every token.
    return len(products) == len(given) == 1 and width in (given[0].tensor.numel(), given[0].shape[-1])
