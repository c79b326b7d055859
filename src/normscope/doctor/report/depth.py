"""The measurements of a stack over depth: by block for a table, and by sub-layer for pictures."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any

from ...report.chart import Panel, Series
from ...report.words import kind_name
from ..record import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class _DepthRow:
    """One quantity at every place of a stack."""

    name: str
    measured: tuple[float | None, ...]
    predicted: tuple[float | None, ...] | None
    """The prediction; None where theory does not predict the quantity."""
    logarithmic: bool


def places(stack: Stack) -> dict[str, list[int]]:
    """Returns the columns of the table with the numbers of their sub-layers, from 0, without what
    stands before the first block: the blocks, or the sub-layers where the stack has only one block.
    """
    blocks = _blocks(stack)
    if len(blocks) == 1:
        (members,) = blocks.values()
        return {f"sub-layer {n}": [i] for n, i in enumerate(members, 1)}
    return {f"block {block}": members for block, members in blocks.items()}


def _blocks(stack: Stack) -> dict[int, list[int]]:
    """Returns the numbers of the sub-layers of each block, from the first one on."""
    blocks: dict[int, list[int]] = {}
    for i, sublayer in enumerate(stack.sublayers):
        if sublayer.block > 0:
            blocks.setdefault(sublayer.block, []).append(i)
    return blocks


def depth_rows(stack: Stack) -> list[_DepthRow]:
    """Four quantities at every block: the stream's square and the similarity of its tokens where
    the block reads it, the mean energy ratio of the block's sub-layers, and the norm of their
    gradients as one vector."""
    return [
        _row(stack, "stream_square", "stream E‖x‖²/d", lambda values: values[0], logarithmic=True),
        _row(stack, "correlation", "token similarity", lambda values: values[0], logarithmic=False),
        _row(stack, "share", "energy ratio F(x)", fmean, logarithmic=False),
        _row(stack, "gradient_norm", "gradient norm", together, logarithmic=True),
    ]


def _row(
    stack: Stack,
    of: str,
    name: str,
    of_place: Callable[[Sequence[Any]], float | None],
    *,
    logarithmic: bool,
) -> _DepthRow:
    """of_place: the quantity of a place, from that of its sub-layers."""
    seen, theory = values_of(stack, of)
    where = places(stack).values()

    def of_places(values: Sequence[float | None]) -> tuple[float | None, ...]:
        found = []
        for members in where:
            found.append(of_place([values[i] for i in members]))
        return tuple(found)

    return _DepthRow(
        name=name,
        measured=of_places(seen),
        predicted=None if theory is None else of_places(theory),
        logarithmic=logarithmic,
    )


def values_of(stack: Stack, of: str) -> tuple[list[float | None], Sequence[float | None] | None]:
    """Returns a quantity, by the name of its field, as it was measured in each sub-layer, and as
    theory predicts it; None where that says nothing of it.
    """
    return [getattr(sublayer.measured, of) for sublayer in stack.sublayers], getattr(
        stack.predicted, of, None
    )


def together(norms: Sequence[float | None]) -> float | None:
    """Returns the norm of several gradients as one vector; None where a norm is not known."""
    known = [norm for norm in norms if norm is not None]
    return math.hypot(*known) if len(known) == len(norms) else None


def depths(stack: Stack) -> list[float | None]:
    """Returns how many blocks are completed where each sub-layer reads the stream, with fractions
    inside a block.

    None stands for sub-layers before the first block. In a stack of one block, completed sub-layers
    are counted instead. Parallel sub-layers of a block read at one place.
    """
    where: list[float | None] = [None] * len(stack.sublayers)
    blocks = _blocks(stack)
    for block, members in blocks.items():
        parallel = [stack.sublayers[i].parallel for i in members]
        # A slot each in the order in which sub-layers read the stream; parallel neighbours share
        # one.
        slots = list(
            accumulate((not (one and before) for before, one in pairwise(parallel)), initial=0)
        )
        for i, slot in zip(members, slots, strict=True):
            where[i] = float(slot) if len(blocks) == 1 else block - 1 + slot / (slots[-1] + 1)
    return where


def finite(value: float | None) -> float | None:
    """Return the value, or None where no axis can show it."""
    return value if value is not None and math.isfinite(value) else None


def positive(value: float | None) -> float | None:
    """Return the value, or None where no logarithmic axis can show it."""
    return value if value is not None and 0 < value < math.inf else None


_LEAST_RATIO = 8.0
"""Least ratio between the ends of a logarithmic axis, so that a level curve looks level and two
ticks lie between.
"""

_ROOM = 1.25
"""Factor between the curves and the ends of a logarithmic axis."""

_SMALL_SHARE = 0.1


def depth_panels(stack: Stack) -> dict[str, Panel]:
    """Returns a panel for every quantity that was measured: stream, correlation, share,
    gradient.
    """
    at, by_kind = depths(stack), curves(stack)
    # A number of the stream itself stands once at every place where sub-layers read it.
    stream = {"measured": [i for i, depth in enumerate(at) if depth not in at[:i]]}
    shares = [share for one in stack.sublayers if (share := finite(one.measured.share)) is not None]
    # Where all are so small that they would lie at the bottom of a linear axis, it is a logarithmic
    # one.
    small = 0 < max(shares, default=0.0) < _SMALL_SHARE
    panels = {
        "stream": _panel(
            stack, "stream_square", stream, "Size of the stream", "E‖x‖² / d", log_y=True
        ),
        "correlation": _panel(
            stack,
            "correlation",
            stream,
            "Cosine similarity between tokens",
            "mean cosine",
            log_y=False,
        ),
        "share": _panel(
            stack,
            "share",
            by_kind,
            "Branch-to-stream energy ratio",
            "‖F‖² / (‖F‖² + ‖x‖²)",
            log_y=small,
        ),
        "gradient": _panel(
            stack,
            "gradient_norm",
            by_kind,
            "Gradient norm of a sub-layer",
            "Frobenius norm",
            log_y=True,
        ),
    }
    return {name: panel for name, panel in panels.items() if panel is not None}


def curves(stack: Stack) -> dict[str, list[int]]:
    """Returns the sub-layers that make one curve, by its label: those of a kind, with at most one
    in a block.

    Where a block has several of a kind, as experts beside a shared one, the first of each block are
    a curve, the second another. Otherwise a curve would run up and down between sub-layers that
    have nothing to do with one another. In a stack of one block the same holds for the places where
    it is read.
    """
    at, single = depths(stack), len(_blocks(stack)) == 1
    seen: Counter[tuple[str, object]] = Counter()
    found: dict[tuple[str, int], list[int]] = {}
    for i, sublayer in enumerate(stack.sublayers):
        place = sublayer.kind, at[i] if single else sublayer.block
        seen[place] += 1
        found.setdefault((sublayer.kind, seen[place]), []).append(i)
    several = {kind for kind, number in found if number > 1}
    return {
        f"{kind_name(kind)} {number}" if kind in several else kind_name(kind): members
        for (kind, number), members in found.items()
    }


def _panel(
    stack: Stack, of: str, members: dict[str, list[int]], title: str, ylabel: str, *, log_y: bool
) -> Panel | None:
    """Measurement and prediction in one hue a curve, without sub-layers before the first block;
    None without values.

    members: the sub-layers that make one curve, by its label.
    """
    at, scale = depths(stack), positive if log_y else finite
    seen, theory = values_of(stack, of)
    several: list[Series] = []
    for hue, (label, some) in enumerate(members.items()):
        kept = [(i, depth) for i in some if (depth := at[i]) is not None]
        x = [depth for _, depth in kept]
        measured = Series(
            label=label, kind="measured", hue=hue, x=x, y=[scale(seen[i]) for i, _ in kept]
        )
        both = [measured]
        if theory is not None:
            y = [scale(theory[i]) for i, _ in kept]
            both.append(Series(label="theory", kind="predicted", hue=hue, x=x, y=y))
        for one in both:
            if any(value is not None for value in one.y):
                several.append(one)
    known = [value for one in several for value in one.y if value is not None]
    if not known:
        return None
    low, high = min(known), max(known)
    room = max(_ROOM, math.sqrt(_LEAST_RATIO * low / high)) if log_y else 1.0
    ends = (low / room, high * room) if log_y else (min(0.0, low) - 0.03, 1.03)
    xlabel = "completed sub-layers" if len(_blocks(stack)) == 1 else "completed blocks"
    return Panel(
        title=title, xlabel=xlabel, ylabel=ylabel, series=several, log_y=log_y, y_range=ends
    )
