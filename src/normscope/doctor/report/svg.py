"""Pictures of a stack over depth: what was measured and predicted, and what the first update changes."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from ...report.chart import Kind, Panel, Series
from ...report.chart_svg import panels_svg
from ...report.words import kind_name
from ..measured import SublayerMeasurements
from ..record import Stack, StackTheory
from .depth import depths, finite, positive
from .words import stack_title

_LEAST_RATIO = 8.0
"""Least ratio between the ends of a logarithmic axis, so that a level curve looks level and two ticks lie between."""
_ROOM = 1.25
"""Factor between the curves and the ends of a logarithmic axis."""
_SMALL_SHARE = 0.1


def depth_pictures(stack: Stack) -> list[tuple[str, str]]:
    """Return (name, SVG) for every quantity that was measured: stream, correlation, share, gradient."""
    of = f" of {stack_title(stack)}"
    return [(name, panels_svg([panel], title=panel.title + of)) for name, panel in depth_panels(stack).items()]


def depth_panels(stack: Stack) -> dict[str, Panel]:
    """The same as panels."""
    panels = {
        "stream": _stream(stack),
        "correlation": _correlation(stack),
        "share": _shares(stack),
        "gradient": _gradients(stack),
    }
    return {name: panel for name, panel in panels.items() if panel is not None}


_Scale = Callable[[float | None], float | None]
"""None for what an axis cannot show, else the value."""


def _stream(stack: Stack) -> Panel | None:
    series = _stream_curves(stack, positive, lambda m: m.stream_square, lambda p: p.stream_square)
    return _panel(stack, series, title="Size of the stream", ylabel="E‖x‖² / d", log_y=True)


def _correlation(stack: Stack) -> Panel | None:
    series = _stream_curves(stack, finite, lambda m: m.correlation, lambda p: p.correlation)
    return _panel(stack, series, title="Cosine similarity between tokens", ylabel="mean cosine", log_y=False)


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
    at = depths(stack)
    single = len({sublayer.block for sublayer in stack.sublayers} - {0}) == 1
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
    curves: tuple[tuple[str, Kind, Sequence[float | None] | None], ...] = (
        (label, "measured", measured),
        (theory, "predicted", predicted),
    )
    for name, kind, values in curves:
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
    single = len({sublayer.block for sublayer in stack.sublayers} - {0}) == 1
    xlabel = "completed sub-layers" if single else "completed blocks"
    return Panel(title=title, xlabel=xlabel, ylabel=ylabel, series=series, log_y=log_y, y_range=ends)
