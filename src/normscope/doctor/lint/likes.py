"""Likes beside likes: the same quantity in every block, and the blocks where it is unlike the
others.

Blocks of one kind are drawn by one scheme. What holds a number in each of them, such as the size of
a matrix or of a norm's gain, is either the same in all, up to the draw, or follows a law of depth,
which rises or falls from block to block. What does neither stands out.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from ..record import Stack, Sublayer
from .patient import Patient
from .structure import by_kind, factor_of_sum

_ONE_STEP = 0.8
"""The share of the whole change over depth from which on one step is odd: a law l^p makes at most
0.63 of it in one step, an odd block nearly all.
"""
_NOTHING = 1e-12
"""A branch's mean square over the stream's that fp32 cannot add."""
_STRAYS = 6.0
"""Standard errors of a size by which likes may differ."""

_Value = TypeVar("_Value", float, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class OddOne(Generic[_Value]):
    """A place whose number, or whose state, is unlike that of its likes."""

    name: str
    block: int
    """The place among its counterparts, counted from 1."""
    value: _Value
    usual: _Value
    """The value of most of the others."""
    likes: int
    """The number of places, this one included."""


def odd_ones(names: Sequence[str], sizes: Sequence[float], *, apart: float) -> list[OddOne[float]]:
    """Returns the places whose size is more than `apart` times, or less than 1 / `apart` of, what
    most of their likes have.

    sizes: 0 or more, in the order of depth. None where fewer than three are given, where most are
    not within √`apart` of the median, and where sizes rise or fall with every block, for that is a
    law of depth.
    """
    if len(sizes) < 3 or not all(map(math.isfinite, sizes)) or _follows_depth(sizes):
        return []
    usual = median(sizes)
    alike = sum(_within(size, usual, math.sqrt(apart)) for size in sizes)
    return _odd(names, sizes, usual, alike, lambda size: not _within(size, usual, apart))


def odd_states(names: Sequence[str], states: Sequence[str]) -> list[OddOne[str]]:
    """Returns the places that are in another state than most of their likes, given in the order of
    depth; none of two.
    """
    if len(states) < 3:
        return []
    usual, count = Counter(states).most_common(1)[0]
    return _odd(names, states, usual, count, lambda state: state != usual)


def _odd(
    names: Sequence[str],
    values: Sequence[_Value],
    usual: _Value,
    alike: int,
    is_odd: Callable[[_Value], bool],
) -> list[OddOne[_Value]]:
    """Returns the odd values where more than half are alike."""
    return [
        OddOne(name=name, block=place, value=value, usual=usual, likes=len(values))
        for place, (name, value) in enumerate(zip(names, values, strict=True), 1)
        if 2 * alike > len(values) and is_odd(value)
    ]


def _within(size: float, usual: float, factor: float) -> bool:
    return size == usual or usual / factor <= size <= usual * factor


def _follows_depth(sizes: Sequence[float]) -> bool:
    """Tells whether sizes rise with every block, or fall, and no one step makes nearly all of the
    change.
    """
    if min(sizes) <= 0:
        return False
    steps = [math.log(after / before) for before, after in pairwise(sizes)]
    one_way = min(steps) > 0 or max(steps) < 0
    return one_way and max(map(abs, steps)) < _ONE_STEP * abs(math.fsum(steps))


def likes_of(stack: Stack) -> Iterator[list[Sublayer]]:
    """The sub-layers of blocks of one kind, in the order of depth.

    Where a kind stands several times in each layer of the model, as a convolution beside a
    feed-forward, those at one place of it: their names differ in numbers alone.
    """
    for kind in by_kind(stack):
        places: defaultdict[str, list[Sublayer]] = defaultdict(list)
        for one in kind:
            places[re.sub(r"\d+", "#", one.name)].append(one)
        several = [some for some in places.values() if len(some) > 2]
        yield from several if len(several) > 1 else [_of_like_parts(kind)]


def _of_like_parts(kind: list[Sublayer]) -> list[Sublayer]:
    """Leaves out sub-layers whose name and number of matrices both differ from the usual, such as a
    second head's sum beside the blocks.
    """
    parts = {one.name: len(one.measured.matrices) for one in kind}
    names = Counter(re.sub(r"\d+", "#", one.name) for one in kind)
    (usual_name, most), usual_size = names.most_common(1)[0], median(parts.values())
    if 2 * most <= len(kind):
        return kind
    return [
        one
        for one in kind
        if re.sub(r"\d+", "#", one.name) == usual_name or parts[one.name] == usual_size
    ]


def repeated(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Tensors whose names differ in one number alone, such as that of their block, in its order.

    They have one shape, and so have those beside them in their module: a bias is drawn by its
    matrix's inputs. Of several numbers in a name it is the one with most likes.
    """
    groups: defaultdict[tuple[str, tuple[torch.Size, ...]], dict[int, str]] = defaultdict(dict)
    at: defaultdict[str, list[tuple[str, tuple[torch.Size, ...]]]] = defaultdict(list)
    shapes: defaultdict[str, list[torch.Size]] = defaultdict(list)
    for name, tensor in tensors.items():
        shapes[name.rpartition(".")[0]].append(tensor.shape)
    for name, tensor in tensors.items():
        for number in re.finditer(r"(?<![^.])\d+(?![^.])", name):
            own_shapes = (tensor.shape, *shapes[name.rpartition(".")[0]])
            key = (f"{name[: number.start()]}#{name[number.end() :]}", own_shapes)
            groups[key][int(number[0])] = name
            at[name].append(key)
    # Each tensor belongs to the largest of its groups alone.
    for key, members in groups.items():
        own = {
            number: name
            for number, name in members.items()
            if max(at[name], key=lambda one: len(groups[one])) == key
        }
        if len(own) > 1:
            yield {own[number]: tensors[own[number]] for number in sorted(own)}


def odd_weights(patient: Patient, *, apart: float) -> list[OddOne[float]]:
    """Returns the parameters whose size is unlike that of the same parameter in the other blocks.

    Of parameters with few entries by more than `apart`: the root mean square of n draws strays by
    1/√(2n) of itself.
    """
    weights = {
        name: weight
        for name, weight in patient.model.named_parameters()
        if weight.is_floating_point()
    }
    found = []
    for group in repeated(weights):
        entries = next(iter(group.values())).numel()
        strays = 1 + _STRAYS / math.sqrt(2 * max(entries, 1))
        sizes = [patient.size_of(weight) for weight in group.values()]
        found += odd_ones(list(group), sizes, apart=max(apart, strays))
    return found


def odd_factors(stack: Stack, *, apart: float) -> list[tuple[str, OddOne[float]]]:
    """Returns the sub-layers whose stream, or whose branch, is multiplied with another number than
    that of its kind in the others.

    With what it is a factor of: "the skip" or "the branch".
    """
    found: list[tuple[str, OddOne[float]]] = []
    for likes in likes_of(stack):
        for what, factors in (
            ("the skip", [one.skip_scale for one in likes]),
            ("the branch", [one.branch_scale for one in likes]),
            ("the sum", list(map(factor_of_sum, likes))),
        ):
            sizes = [abs(factor) for factor in factors if factor is not None]
            if len(sizes) == len(factors):
                odd = odd_ones([one.name for one in likes], sizes, apart=apart)
                found += [(what, one) for one in odd if one.value and one.usual]
    return found


def odd_branches(stack: Stack, *, apart: float) -> list[OddOne[float]]:
    """Returns the sub-layers that add a vector of another size than those of their kind do in the
    other blocks.

    Not those of the first block: they may read an embedding of another size than the streams that
    blocks leave. Nor where what is added is next to nothing beside the stream, in this block and in
    the others.
    """
    found = []
    for likes in likes_of(stack):
        # Where ε outweighs what a norm reads, its branch is small for that, which has a rule.
        likes = [one for one in likes if one.measured.stream_square >= (stack.norm_epsilon or 0.0)]
        if any(one.measured.branch_square > _NOTHING * one.measured.stream_square for one in likes):
            # Blocks of two kinds, with a norm before and with one after, add by two measures.
            ways = Counter(map(_norms_of, likes))
            usual, _ = ways.most_common(1)[0] if ways else ("", 0)
            if 2 * ways[usual] > len(likes):
                likes = [one for one in likes if _norms_of(one) == usual]
            sizes = [math.sqrt(one.measured.branch_square) for one in likes]
            found += odd_ones([one.name for one in likes], sizes, apart=apart)
    return [one for one in found if one.value and one.block > 1]


def _norms_of(sublayer: Sublayer) -> str:
    """Returns a sub-layer's formula without its numbers: the order of its norms, its branch and its
    sum. A factor of one block alone is no other kind of block.
    """
    return re.sub(r"[\d.]+\s*[·*]?\s*", "", str(sublayer.formula))


def odd_gradients(stack: Stack, *, apart: float) -> list[OddOne[float]]:
    """Returns the sub-layers whose measured gradient over theory's is unlike that of their kind in
    the other blocks.

    Where the gradients themselves are alike it is theory that stands out, and not the sub-layer.
    """
    if stack.predicted is None:
        return []
    found = []
    theory = {
        id(one): norm
        for one, norm in zip(stack.sublayers, stack.predicted.gradient_norm, strict=True)
        if norm
    }
    for likes in likes_of(stack):
        known = [one for one in likes if id(one) in theory]
        names, norms = (
            [one.name for one in known],
            [one.measured.gradient_norm or 0.0 for one in known],
        )
        ratios = [norm / theory[id(one)] for one, norm in zip(known, norms, strict=True)]
        own = {one.name for one in odd_ones(names, norms, apart=math.sqrt(apart))}
        found += [
            one for one in odd_ones(names, ratios, apart=apart) if one.name in own and one.value
        ]
    return found


def odd_parameters(
    model: nn.Module,
    state: Callable[[nn.Parameter], str],
    *,
    usual: Callable[[Sequence[str]], bool] = lambda _: False,
) -> list[OddOne[str]]:
    """Returns the parameters in another state than the same parameter in most other blocks.

    usual: of the states of likes, in the order of depth, whether that they differ is no wonder.
    """
    weights, found = dict(model.named_parameters()), []
    for group in repeated(weights):
        states = [state(weights[name]) for name in group]
        found += [] if usual(states) else odd_states(list(group), states)
    return found


def odd_precisions(stack: Stack) -> list[OddOne[str]]:
    """Returns the sub-layers that compute in another dtype than those of their kind in most other
    blocks.
    """
    found = []
    for kind in likes_of(stack):
        likes = [one for one in kind if one.measured.precision]
        odd = odd_states([one.name for one in likes], [one.measured.precision for one in likes])
        found += [replace(one, block=likes[one.block - 1].block) for one in odd]
    return found
