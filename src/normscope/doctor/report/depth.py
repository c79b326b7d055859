"""The measurements of a stack over depth: by block for a table, and by sub-layer for pictures."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ...report.chart import Kind, Panel, Series
from ...report.words import kind_name
from ..measured import SublayerMeasurements
from ..record import Stack, StackTheory


@dataclass(frozen=True, slots=True, kw_only=True)
class _DepthColumn:
    """A column of the table: a block, or a sub-layer where the stack has only one block."""

    label: str
    members: tuple[int, ...]
    """Numbers of the sub-layers, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRow:
    """One quantity at every place of a stack."""

    name: str
    measured: tuple[float | None, ...]
    predicted: tuple[float | None, ...] | None
    """None where theory does not predict the quantity."""
    logarithmic: bool


def places(stack: Stack) -> list[_DepthColumn]:
    """The blocks from the first one on: what stands before it is left out."""
    blocks = _blocks(stack)
    if len(blocks) == 1:
        (members,) = blocks.values()
        return [_DepthColumn(label=f"sub-layer {n}", members=(i,)) for n, i in enumerate(members, 1)]
    return [_DepthColumn(label=f"block {block}", members=tuple(members)) for block, members in blocks.items()]


def _blocks(stack: Stack) -> dict[int, list[int]]:
    """Numbers of the sub-layers of each block, from the first one on."""
    blocks: dict[int, list[int]] = {}
    for i, sublayer in enumerate(stack.sublayers):
        if sublayer.block > 0:
            blocks.setdefault(sublayer.block, []).append(i)
    return blocks


def depth_rows(stack: Stack) -> list[DepthRow]:
    """Four quantities at every block: the stream's square and the similarity of its tokens where the block reads it,
    the mean energy ratio of the block's sub-layers, and the norm of their gradients as one vector."""
    where = places(stack)
    seen, predicted = [sublayer.measured for sublayer in stack.sublayers], stack.predicted
    return [
        _entering(stack, where, "stream E‖x‖²/d", True, lambda m: m.stream_square, lambda p: p.stream_square),
        _entering(stack, where, "token similarity", False, lambda m: m.correlation, lambda p: p.correlation),
        DepthRow(
            name="energy ratio F(x)",
            measured=tuple(math.fsum(seen[i].share for i in place.members) / len(place.members) for place in where),
            predicted=None,
            logarithmic=False,
        ),
        DepthRow(
            name="gradient norm",
            measured=tuple(together([seen[i].gradient_norm for i in place.members]) for place in where),
            predicted=None
            if predicted is None
            else tuple(together([predicted.gradient_norm[i] for i in place.members]) for place in where),
            logarithmic=True,
        ),
    ]


def _entering(
    stack: Stack,
    where: Sequence[_DepthColumn],
    name: str,
    logarithmic: bool,
    measured: Callable[[SublayerMeasurements], float | None],
    predicted: Callable[[StackTheory], Sequence[float]],
) -> DepthRow:
    """What is a number of the stream itself, where the first sub-layer of each place reads it."""
    first = [place.members[0] for place in where]
    theory = None if stack.predicted is None else predicted(stack.predicted)
    return DepthRow(
        name=name,
        measured=tuple(measured(stack.sublayers[i].measured) for i in first),
        predicted=None if theory is None else tuple(theory[i] for i in first),
        logarithmic=logarithmic,
    )


def together(norms: Sequence[float | None]) -> float | None:
    """The norm of several gradients as one vector; None where a norm is not known."""
    known = [norm for norm in norms if norm is not None]
    return math.hypot(*known) if len(known) == len(norms) else None


def depths(stack: Stack) -> list[float | None]:
    """How many blocks are completed where each sub-layer reads the stream, with fractions inside a block.

    None stands for sub-layers before the first block. In a stack of one block, completed sub-layers are counted
    instead. Parallel sub-layers of a block read at one place.
    """
    where: list[float | None] = [None] * len(stack.sublayers)
    blocks = _blocks(stack)
    for block, members in blocks.items():
        slots = _slots([stack.sublayers[i].parallel for i in members])
        for i, slot in zip(members, slots, strict=True):
            where[i] = float(slot) if len(blocks) == 1 else block - 1 + slot / (slots[-1] + 1)
    return where


def _slots(parallel: Sequence[bool]) -> list[int]:
    """The order in which sub-layers read the stream: one slot each, except that parallel neighbours share a slot."""
    return list(accumulate((not (one and before) for before, one in pairwise(parallel)), initial=0))


def finite(value: float | None) -> float | None:
    """Return the value, or None where no axis can show it."""
    return value if value is not None and math.isfinite(value) else None


def positive(value: float | None) -> float | None:
    """Return the value, or None where no logarithmic axis can show it."""
    return value if value is not None and 0 < value < math.inf else None


_LEAST_RATIO = 8.0
"""Least ratio between the ends of a logarithmic axis, so that a level curve looks level and two ticks lie between."""

_ROOM = 1.25
"""Factor between the curves and the ends of a logarithmic axis."""

_SMALL_SHARE = 0.1


def depth_panels(stack: Stack) -> dict[str, Panel]:
    """Of every quantity that was measured its picture: stream, correlation, share, gradient."""
    sizes = _stream_curves(stack, positive, lambda m: m.stream_square, lambda p: p.stream_square)
    cosines = _stream_curves(stack, finite, lambda m: m.correlation, lambda p: p.correlation)
    panels = {
        "stream": _panel(stack, sizes, title="Size of the stream", ylabel="E‖x‖² / d", log_y=True),
        "correlation": _panel(
            stack, cosines, title="Cosine similarity between tokens", ylabel="mean cosine", log_y=False
        ),
        "share": _shares(stack),
        "gradient": _gradients(stack),
    }
    return {name: panel for name, panel in panels.items() if panel is not None}


_Scale = Callable[[float | None], float | None]
"""None for what an axis cannot show, else the value."""


def _stream_curves(
    stack: Stack,
    scale: _Scale,
    measured: Callable[[SublayerMeasurements], float | None],
    predicted: Callable[[StackTheory], Sequence[float | None]],
) -> list[Series]:
    """What is a number of the stream itself, once at every place where sub-layers read it."""
    values = [scale(measured(sublayer.measured)) for sublayer in stack.sublayers]
    at = depths(stack)
    first = [i for i, depth in enumerate(at) if depth not in at[:i]]
    return _both("measured", "theory", 0, stack, values, _predicted(stack, scale, predicted), first)


def _shares(stack: Stack) -> Panel | None:
    """Energy ratios; on a logarithmic axis where all are so small that they would lie at the bottom of a linear one."""
    shares = [finite(sublayer.measured.share) for sublayer in stack.sublayers]
    small = 0 < max((share for share in shares if share is not None), default=0.0) < _SMALL_SHARE
    values = [positive(share) for share in shares] if small else shares
    series: list[Series] = []
    for hue, (label, members) in enumerate(curves(stack).items()):
        series += _both(label, "", hue, stack, values, None, members)
    return _panel(stack, series, title="Branch-to-stream energy ratio", ylabel="‖F‖² / (‖F‖² + ‖x‖²)", log_y=small)


def _gradients(stack: Stack) -> Panel | None:
    series: list[Series] = []
    predicted = _predicted(stack, positive, lambda p: p.gradient_norm)
    values = [positive(sublayer.measured.gradient_norm) for sublayer in stack.sublayers]
    for hue, (label, members) in enumerate(curves(stack).items()):
        series += _both(label, "theory", hue, stack, values, predicted, members)
    return _panel(stack, series, title="Gradient norm of a sub-layer", ylabel="Frobenius norm", log_y=True)


def curves(stack: Stack) -> dict[str, list[int]]:
    """The sub-layers that make one curve, by its label: those of a kind, with at most one in a block.

    Where a block has several of a kind, as experts beside a shared one, the first of each block are a curve, the second
    another. Otherwise a curve would run up and down between sub-layers that have nothing to do with one another. In a
    stack of one block the same holds for the places where it is read.
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


def _predicted(
    stack: Stack, scale: _Scale, of: Callable[[StackTheory], Sequence[float | None]]
) -> list[float | None] | None:
    return None if stack.predicted is None else [scale(value) for value in of(stack.predicted)]


def _both(
    label: str,
    theory: str,
    hue: int,
    stack: Stack,
    measured: Sequence[float | None],
    predicted: Sequence[float | None] | None,
    members: Sequence[int],
) -> list[Series]:
    """Measurement and prediction of the same sub-layers in one hue, without sub-layers before the first block."""
    at = depths(stack)
    kept = [(i, depth) for i in members if (depth := at[i]) is not None]
    x = [depth for _, depth in kept]
    several: list[Series] = []
    both: tuple[tuple[str, Kind, Sequence[float | None] | None], ...]
    both = (label, "measured", measured), (theory, "predicted", predicted)
    for name, kind, values in both:
        y = [] if values is None else [values[i] for i, _ in kept]
        if any(value is not None for value in y):
            several.append(Series(label=name, kind=kind, hue=hue, x=x, y=y))
    return several


def _panel(stack: Stack, series: Sequence[Series], *, title: str, ylabel: str, log_y: bool) -> Panel | None:
    """The panel, or None where no value is known."""
    values = [value for one in series for value in one.y if value is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    if log_y:
        room = max(_ROOM, math.sqrt(_LEAST_RATIO * low / high))
        ends = (low / room, high * room)
    else:
        ends = (min(0.0, low) - 0.03, 1.03)
    xlabel = "completed sub-layers" if len(_blocks(stack)) == 1 else "completed blocks"
    return Panel(title=title, xlabel=xlabel, ylabel=ylabel, series=series, log_y=log_y, y_range=ends)
