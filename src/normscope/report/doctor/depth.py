"""A stack's measurements as curves over depth, by sub-layer for pictures and by block for a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A block, or a sub-layer of a stack that has but one block."""

    label: str
    members: tuple[int, ...]
    """Numbers of its sub-layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRow:
    """One quantity at every place of a stack."""

    name: str
    measured: tuple[float | None, ...]
    predicted: tuple[float | None, ...] | None
    """None where there is no prediction of it."""
    logarithmic: bool


def places(stack: Mapping[str, Any]) -> list[Place]:
    """From the first block on: what stands before it is left out."""
    blocks: dict[int, list[int]] = {}
    for i, found in enumerate(stack["sublayers"]):
        if found["block"] > 0:
            blocks.setdefault(found["block"], []).append(i)
    if len(blocks) == 1:
        (members,) = blocks.values()
        return [Place(label=f"sub-layer {n}", members=(i,)) for n, i in enumerate(members, 1)]
    return [Place(label=f"block {block}", members=tuple(members)) for block, members in blocks.items()]


def depth_rows(stack: Mapping[str, Any]) -> list[DepthRow]:
    """Of a block: the stream and its correlation as it enters, the mean share of its sub-layers, and the norm of their
    gradients taken together."""
    seen = [found["measured"] for found in stack["sublayers"]]
    predicted = stack["predicted"]
    where = places(stack)

    def entering(name: str, logarithmic: bool, label: str) -> DepthRow:
        return DepthRow(
            name=label,
            measured=tuple(seen[place.members[0]][name] for place in where),
            predicted=predicted and tuple(predicted[name][place.members[0]] for place in where),
            logarithmic=logarithmic,
        )

    def mean_share(place: Place) -> float:
        return math.fsum(seen[i]["share"] for i in place.members) / len(place.members)

    return [
        entering("stream_square", True, "stream E‖x‖²/d"),
        entering("correlation", False, "token correlation"),
        DepthRow(
            name="share of F(x)",
            measured=tuple(mean_share(place) for place in where),
            predicted=None,
            logarithmic=False,
        ),
        DepthRow(
            name="gradient norm",
            measured=tuple(together([seen[i]["gradient_norm"] for i in place.members]) for place in where),
            predicted=predicted
            and tuple(together([predicted["gradient_norm"][i] for i in place.members]) for place in where),
            logarithmic=True,
        ),
    ]


def together(norms: Sequence[float | None]) -> float | None:
    """The norm of several gradients as one vector; None where one of them is not known."""
    known = [norm for norm in norms if norm is not None]
    return math.hypot(*known) if len(known) == len(norms) else None


def depths(stack: Mapping[str, Any]) -> list[float | None]:
    """Completed blocks where each sub-layer reads the stream, with fractions inside a block; None before the first.

    In a stack of one block, how many sub-layers are completed. Parallel sub-layers of a block read at one place.
    """
    where: list[float | None] = [None] * len(stack["sublayers"])
    blocks: dict[int, list[int]] = {}
    for i, found in enumerate(stack["sublayers"]):
        blocks.setdefault(found["block"], []).append(i)
    single = len(blocks.keys() - {0}) == 1
    for block, members in blocks.items():
        if block == 0:
            continue
        slots = _slots([stack["sublayers"][i]["parallel"] for i in members])
        for i, slot in zip(members, slots, strict=True):
            where[i] = float(slot) if single else block - 1 + slot / (slots[-1] + 1)
    return where


def _slots(parallel: Sequence[bool]) -> list[int]:
    """The order in which they read: the next slot for each, except that parallel ones in a row share theirs."""
    slots: list[int] = []
    for i, beside in enumerate(parallel):
        if i == 0:
            slots.append(0)
        else:
            slots.append(slots[-1] if beside and parallel[i - 1] else slots[-1] + 1)
    return slots


def finite(value: float | None) -> float | None:
    """None for what no axis can show."""
    return value if value is not None and math.isfinite(value) else None


def positive(value: float | None) -> float | None:
    """None for what no logarithmic axis can show."""
    return value if value is not None and 0 < value < math.inf else None
