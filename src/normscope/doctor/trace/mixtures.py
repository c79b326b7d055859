"""Means over depth, known by what they do: softmax weights over earlier values, for every token on its own."""

from collections.abc import Container
from dataclasses import dataclass

import torch

from .flow import STACKING, Flow
from .operations import Value

SOFTMAX = frozenset({"_softmax", "_safe_softmax"})
_WEIGHING = frozenset({"bmm", "mm", "mul", "sum"})
_LARGEST = 100
"""Operations between the stacked values and their mean."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """A value that is a weighted mean of others of its size; the weights are positive and add up to 1."""

    sources: tuple[int, ...]
    weights: int
    """Number of the softmax."""
    by_parameter: bool
    """Whether the weights are a softmax over products of the values with one trained vector, and nothing else."""
    key_norms: int
    """How many norms the values pass before these products."""


def mixture_of(flow: Flow, value: Value, norms: Container[int]) -> Mixture | None:
    """What mean of which earlier values this is; None where it is none.

    norms: the numbers of the values that are norms.
    """
    if value.op not in _WEIGHING or not value.is_data or not value.tensor.is_floating_point():
        return None
    stacked = flow.dominators[value.number]
    while stacked >= 0 and flow.values[stacked].op not in STACKING and value.number - stacked <= _LARGEST:
        stacked = flow.dominators[stacked]
    if stacked < 0 or flow.values[stacked].op not in STACKING or value.number - stacked > _LARGEST:
        return None
    sources = flow.predecessors[stacked]
    size = value.tensor.numel()
    if any(flow.values[n].tensor.numel() != size for n in sources) or len(sources) != len(flow.values[stacked].inputs):
        return None
    inside = flow.between(stacked, value.number)[1:]
    softmaxes = [n for n in inside if flow.values[n].op in SOFTMAX]
    if len(softmaxes) != 1 or not _keeps_what_all_agree_on(flow, value, stacked, len(sources)):
        return None
    keys = flow.between(stacked, softmaxes[0])[1:]
    return Mixture(
        sources=tuple(sources),
        weights=softmaxes[0],
        by_parameter=_by_parameter(flow, keys, flow.values[sources[0]].shape[-1]),
        key_norms=sum(n in norms for n in keys),
    )


def _keeps_what_all_agree_on(flow: Flow, value: Value, stacked: int, count: int) -> bool:
    """Whether the value is z where z takes the place of every value in the stack."""
    call = flow.values[stacked].call
    if call is None or value.tensor.is_meta:
        return False
    like = flow.values[flow.predecessors[stacked][0]].tensor
    z = torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like)
    try:
        mean = flow.trace.again({stacked: call.function([z] * count, *call.args[1:], **call.kwargs)}, value.number)
    except (ValueError, RuntimeError):
        return False
    return torch.allclose(mean.reshape(z.shape).double(), z.double(), rtol=1e-2, atol=1e-2)


def _by_parameter(flow: Flow, keys: list[int], width: int) -> bool:
    products = [flow.values[n] for n in keys if flow.is_product(flow.values[n])]
    given = [flow.values[n].tensor for value in products for n in value.inputs if not flow.values[n].is_data]
    return len(products) == len(given) == 1 and given[0].numel() == width
