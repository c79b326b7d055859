"""The weights of several streams: in one tensor, and in tensors of their own.

The weights of a sum over streams in one tensor are read off by computing it again. One stream is
set to ones and the others to zero, and everything that the weights are made from is held as it was
recorded. Random streams then show whether these weights explain the whole value.

Streams in tensors of their own are known by products with numbers that each token has of its own. A
branch that is added to several streams is multiplied with another number for each of them, made
from the streams by way of a matrix, or streams are mixed: several sums of the same streams, each
times another number. Experts differ: each is multiplied once. Norms differ: their numbers are made
from the value alone.
"""

# N = tokens, n = streams, D = width
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import isnan, nan

import torch
from torch import Tensor

from .flow import Flow
from .operations import UNREPEATABLE, Origin, TracedValue, apart

_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Relative, of what random streams give; 1e-4 for wider numbers."""

SUMS_TO_ONE = 1e-3
"""The distance from 1 up to which a sum of weights counts as meant to be 1."""


@dataclass(frozen=True, slots=True, eq=False)
class LaneWeights:
    """The weights with which each of some streams goes into each of others, token by token."""

    streams: int
    """The number of streams on the side that has several."""
    width: int
    origin: Origin
    """The origin of the weights: numbers of the model, or data, so that every token has its own."""
    values_NOI: Tensor
    """Tokens, streams made, streams read; the mean over features where these differ. NaN on the
    meta device.
    """
    by_feature_NOID: Tensor | None = None
    """The same where every feature has its own, as behind a gate."""

    @property
    def total(self) -> float:
        """The factor of streams that are all equal, its mean over tokens; NaN on the meta
        device.
        """
        return float(self.values_NOI.double().sum(-1).mean())

    @property
    def _off(self) -> Tensor:
        """The distance of row and column sums from 1 for every token; NaN on the meta device."""
        each = self.values_NOI.double()
        return (torch.cat([each.sum(-1), each.sum(-2)], -1) - 1).abs()

    @property
    def from_doubly_stochastic(self) -> float:
        """The largest difference of a row's or a column's sum from 1, or the largest negative
        weight.
        """
        return max(float(self._off.max()), float((-self.values_NOI.double()).max()))

    @property
    def one_side_alone(self) -> float | None:
        """The largest distance of row sums from 1 where all column sums are 1 and no weight is
        negative, or the other way round; None for any other weights.
        """
        if bool((self.values_NOI < 0).any()):
            return None
        near, far = sorted(
            float((self.values_NOI.double().sum(dim) - 1).abs().max()) for dim in (-1, -2)
        )
        return far if near < SUMS_TO_ONE < far else None

    @property
    def spread(self) -> float:
        """Standard deviation of all weights over tokens and streams, relative to their mean; NaN on
        the meta device.
        """
        each = self.values_NOI.double()
        mean = abs(float(each.mean()))
        return float(each.std(correction=0)) / mean if mean else float("inf")

    def tokens_off(self, by_more_than: float) -> float:
        """Returns the share of tokens at which a sum of a row or a column differs from 1 by more
        than that.
        """
        return (
            nan if isnan(self.total) else float((self._off.amax(-1) > by_more_than).double().mean())
        )

    def applied(self, x_NID: Tensor) -> Tensor:
        """Returns the streams that these weights make of others: (N, I, D) to (N, O, D)."""
        if self.by_feature_NOID is not None:
            return torch.einsum("noid,nid->nod", self.by_feature_NOID.to(x_NID), x_NID)
        return torch.einsum("noi,nid->nod", self.values_NOI.to(x_NID), x_NID)


def weights_of(
    flow: Flow, *, made: int, of: int, frozen: Sequence[int], streams: tuple[int, int], width: int
) -> LaneWeights | None:
    """Returns the weights by which one value is made of another; None where it is more than a
    weighted sum of each token's own.

    frozen: what to leave as it was recorded. streams: how many are read, and how many are made.
    """
    values, (read, given) = flow.values, streams
    source, target = values[of].tensor, values[made].tensor
    origin = max((values[n].origin for n in frozen), default=Origin.CONSTANT)
    if apart(source, read, width) is None or apart(target, given, width) is None:
        return None
    if source.is_meta:
        return LaneWeights(max(streams), width, origin, torch.full((1, given, read), nan))
    held = {n: values[n].tensor for n in frozen}

    def again(x_NID: Tensor) -> Tensor | None:
        # Views of it are taken as they were of the recorded one: it lies in memory in the same
        # order.
        x = torch.empty_like(source).copy_(x_NID.reshape(source.shape))
        return apart(flow.trace.again({**held, of: x}, made), given, width)

    x_NID = torch.zeros(source.numel() // (read * width), read, width)
    columns = []
    try:
        for stream in range(read):
            one = x_NID.clone()
            one[:, stream] = 1
            columns.append(again(one))
        some = torch.randn(x_NID.shape, generator=torch.Generator().manual_seed(0))
        expected = again(some)
    except UNREPEATABLE:
        return None
    if expected is None or any(
        column is None or len(column) != len(expected) for column in columns
    ):
        return None
    by_feature = torch.stack([column for column in columns if column is not None], 2).float()
    mean = by_feature.mean(-1)
    same = torch.allclose(
        by_feature, mean[..., None].expand(by_feature.shape), rtol=1e-4, atol=1e-5
    )
    weights = LaneWeights(max(streams), width, origin, mean, None if same else by_feature)
    tolerance = _TOLERANCE.get(source.dtype, 1e-4)
    shown = expected.float()
    size = float(shown.abs().mean()) if shown.numel() else 0.0
    close = torch.allclose(
        weights.applied(some.to(shown)), shown, rtol=tolerance, atol=tolerance * size
    )
    return weights if close else None


def token_weights(flow: Flow, norms: Container[int]) -> dict[int, tuple[int, int]]:
    """For each product of a stream with numbers of each token: what is multiplied, and these
    numbers.

    Empty for a model in which no branch is added to several streams and none are mixed.
    norms: the numbers of the values that are norms.
    """
    products: dict[int, tuple[int, int]] = {}
    times: dict[int, set[int]] = {}
    for value in flow.values:
        pair = _product(flow, value) if value.number not in norms else None
        if pair is not None:
            products[value.number] = pair
            times.setdefault(flow.rearranged(pair[0]), set()).add(pair[1])
    shared = {root for root, weights in times.items() if len(weights) > 1}
    written = any(
        flow.depends(root, n)
        for root in shared
        for n in _weighed_before(flow, shared, products, root)
    )
    if not written and not _are_mixed(flow, shared, products):
        return {}
    # What multiples of these are added to is a stream too, though it may be read once.
    found: dict[int, tuple[int, int]] = {}
    sums: set[int] = set()
    for value in flow.values:
        number = value.number
        if number in products and flow.rearranged(products[number][0]) in shared | sums:
            found[number] = products[number]
        elif value.op == "add" and any(
            flow.rearranged(n) in found or n in sums for n in flow.predecessors[number]
        ):
            sums.add(number)
    return found


def _product(flow: Flow, value: TracedValue) -> tuple[int, int] | None:
    """Returns the value that is multiplied with one number for each of its tokens, and these
    numbers, which a matrix makes; None for other values.
    """
    before = flow.predecessors[value.number]
    if value.op != "mul" or len(before) != 2 or not value.shape or value.shape[-1] < 2:
        return None
    for x, weight in (before, before[::-1]):
        shape = flow.values[weight].shape
        if (
            flow.values[x].shape != value.shape
            or shape[-1:] != (1,)
            or shape[:-1] != value.shape[:-1]
        ):
            continue
        if flow.depends(weight, x) and not flow.through_weights[weight] >> x & 1:
            return None
        return (x, weight) if flow.through_weights[weight] else None
    return None


def _weighed_before(
    flow: Flow, shared: set[int], products: dict[int, tuple[int, int]], root: int
) -> list[int]:
    """Returns the streams that a shared value is made from by way of a matrix, and that its numbers
    are made from too.
    """
    own = [weight for x, weight in products.values() if flow.rearranged(x) == root]
    # Numbers that are made from the value itself tell nothing of what it is made from.
    if any(flow.depends(weight, root) for weight in own):
        return []

    def makes_all(stream: int) -> bool:
        return all(flow.through_weights[made] >> stream & 1 for made in (root, *own))

    return [stream for stream in shared if stream != root and makes_all(stream)]


def _are_mixed(flow: Flow, shared: set[int], products: dict[int, tuple[int, int]]) -> bool:
    """Tells whether the same two shared values, or one as two streams, are added up more than once,
    with different numbers.
    """
    sums: Counter[frozenset[int]] = Counter()
    for value in flow.values:
        before = flow.predecessors[value.number]
        if value.op == "add" and len(before) == 2 and all(n in products for n in before):
            sums[frozenset(flow.rearranged(products[n][0]) for n in before)] += 1
    return any(count > 1 and roots <= shared for roots, count in sums.items())
