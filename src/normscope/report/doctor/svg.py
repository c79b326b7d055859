"""Pictures of a diagnosis: a stack over depth, and what a learning rate does to the model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..panels_svg import Kind, Panel, Series, panels_svg
from ..svg import HUES, INK, house_style, to_svg
from .depth import depths, finite, positive
from .words import figures, kind_name, percent, rate, stack_title

_WIDTH_INCHES, _HEIGHT_INCHES = 4.6, 3.7
_LEAST_RATIO = 8.0
"""Of the ends of a logarithmic axis: what stays level should look so, and two of 1, 2 and 5 lie between."""
_ROOM = 1.25
"""Between the curves and the ends of a logarithmic axis."""
_SMALL_SHARE = 0.1
_RISE_SHOWN = 1.0
"""How far a loss is drawn above that of the model as it is, in units of how far it falls."""


def depth_pictures(stack: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, SVG) of every quantity that was measured: stream, correlation, share, gradient."""
    panels = {
        "stream": _stream(stack),
        "correlation": _correlation(stack),
        "share": _shares(stack),
        "gradient": _gradients(stack),
    }
    of = f" of {stack_title(stack)}"
    return [(name, panels_svg([panel], title=panel.title + of)) for name, panel in panels.items() if panel is not None]


def _stream(stack: Mapping[str, Any]) -> Panel | None:
    return _one_curve(
        stack, "stream_square", title="Size of the stream", ylabel="E‖x‖² / d", scale=positive, log_y=True
    )


def _correlation(stack: Mapping[str, Any]) -> Panel | None:
    return _one_curve(
        stack, "correlation", title="Correlation of tokens", ylabel="mean cosine", scale=finite, log_y=False
    )


def _one_curve(
    stack: Mapping[str, Any], name: str, *, title: str, ylabel: str, scale: Any, log_y: bool
) -> Panel | None:
    """What is a number of the stream itself, where each sub-layer reads it."""
    measured = [scale(found["measured"][name]) for found in stack["sublayers"]]
    series = _both("measured", "theory", 0, stack, measured, _predicted(stack, name, scale), range(len(measured)))
    return _panel(stack, series, title=title, ylabel=ylabel, log_y=log_y)


def _shares(stack: Mapping[str, Any]) -> Panel | None:
    """On a logarithmic axis where all of them are so small that they would lie on the bottom of one from 0 to 1."""
    shares = [finite(found["measured"]["share"]) for found in stack["sublayers"]]
    small = 0 < max((share for share in shares if share is not None), default=0.0) < _SMALL_SHARE
    values = [positive(share) for share in shares] if small else shares
    series: list[Series] = []
    for hue, (kind, members) in enumerate(_kinds(stack).items()):
        series += _both(kind_name(kind), "", hue, stack, values, None, members)
    return _panel(stack, series, title="Share of a sub-layer in its sum", ylabel="‖F‖² / (‖F‖² + ‖x‖²)", log_y=small)


def _gradients(stack: Mapping[str, Any]) -> Panel | None:
    series: list[Series] = []
    predicted = _predicted(stack, "gradient_norm", positive)
    values = [positive(found["measured"]["gradient_norm"]) for found in stack["sublayers"]]
    for hue, (kind, members) in enumerate(_kinds(stack).items()):
        series += _both(kind_name(kind), "theory", hue, stack, values, predicted, members)
    return _panel(stack, series, title="Gradient norm of a sub-layer", ylabel="Frobenius norm", log_y=True)


def _kinds(stack: Mapping[str, Any]) -> dict[str, list[int]]:
    kinds: dict[str, list[int]] = {}
    for i, found in enumerate(stack["sublayers"]):
        kinds.setdefault(found["kind"], []).append(i)
    return kinds


def _predicted(stack: Mapping[str, Any], name: str, scale: Any) -> list[float | None] | None:
    predicted = stack["predicted"]
    return None if predicted is None else [scale(value) for value in predicted[name]]


def _both(
    label: str,
    theory: str,
    hue: int,
    stack: Mapping[str, Any],
    measured: Sequence[float | None],
    predicted: Sequence[float | None] | None,
    members: Sequence[int],
) -> list[Series]:
    """Measurement and prediction of the same sub-layers in one hue, without those before the first block."""
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


def _panel(stack: Mapping[str, Any], series: Sequence[Series], *, title: str, ylabel: str, log_y: bool) -> Panel | None:
    """None where nothing of it is known."""
    values = [value for one in series for value in one.y if value is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    if log_y:
        room = max(_ROOM, math.sqrt(_LEAST_RATIO * low / high))
        ends = (low / room, high * room)
    else:
        ends = (min(0.0, low) - 0.03, 1.03)
    single = len({found["block"] for found in stack["sublayers"]} - {0}) == 1
    xlabel = "completed sub-layers" if single else "completed blocks"
    return Panel(title=title, xlabel=xlabel, ylabel=ylabel, series=series, log_y=log_y, y_range=ends)


@house_style()
def loss_picture(advice: Mapping[str, Any], loss_nats: float | None) -> str:
    """The loss after one update at each rate, with that of the model as it is; losses far above it are cut."""
    rates, losses = advice["rates"], [finite(loss) for loss in advice["loss_along_step"]]
    figure, axes = _axes("loss in nats")
    axes.plot(
        rates,
        [math.nan if loss is None else loss for loss in losses],
        color=HUES[0],
        marker="o",
        ms=3.5,
        lw=1.8,
        label="loss after one update",
    )
    known = [loss for loss in losses if loss is not None]
    if loss_nats is not None and math.isfinite(loss_nats):
        axes.axhline(loss_nats, color=INK, lw=1.0, ls=(0, (1.2, 1.8)), label="before it", zorder=1.5)
        if known:
            fall = max(loss_nats - min(known), 0.02 * loss_nats)
            axes.set_ylim(min(known) - 0.12 * fall, min(max(*known, loss_nats), loss_nats + _RISE_SHOWN * fall))
    _rates(axes, advice)
    _finish(axes, rates)
    pairs = [f"{rate(at)}: {figures(loss)}" for at, loss in zip(rates, losses, strict=True)]
    return to_svg(figure, title="Loss along the first update against the rate", desc="; ".join(pairs))


@house_style()
def chance_picture(advice: Mapping[str, Any]) -> str:
    """The chance that a constant rate diverges, from 0 to 1."""
    rates, chances = advice["rates"], advice["chances"]
    figure, axes = _axes("chance to diverge")
    axes.plot(rates, chances, color=HUES[0], lw=2.2, label="without warm-up")
    axes.fill_between(rates, chances, color=HUES[0], alpha=0.1, lw=0)
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    wanted, chance = advice["wanted_rate"], advice["divergence_chance"]
    if wanted is not None and chance is not None:
        axes.plot([wanted], [chance], color=INK, marker="o", ms=7, ls="", zorder=4)
    _rates(axes, advice)
    _finish(axes, rates)
    pairs = [f"{rate(at)}: {percent(value)}" for at, value in zip(rates, chances, strict=True)]
    return to_svg(figure, title="Chance of divergence against the rate", desc="; ".join(pairs))


def _axes(ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH_INCHES, _HEIGHT_INCHES))
    axes = figure.add_axes((0.2, 0.36, 0.76, 0.62))  # fixed: two pictures side by side have their axes in line
    axes.set(xscale="log", xlabel="learning rate", ylabel=ylabel)
    return figure, axes


def _rates(axes: Axes, advice: Mapping[str, Any]) -> None:
    """A line at each rate that the advice is about; the safe one with its factor of error as a band."""
    safe, factor = advice["safe_rate"], advice["factor"]
    axes.axvspan(safe / factor, safe * factor, color=HUES[2], alpha=0.13, lw=0, zorder=0.5)
    lines = (
        ("safe", safe, HUES[2], "-"),
        ("critical", advice["critical_rate"], HUES[1], (0, (5, 1.5))),
        ("wanted", advice["wanted_rate"], INK, (0, (1.5, 1.3))),
    )
    for name, at, color, dash in lines:
        if at is not None:
            axes.axvline(at, color=color, ls=dash, lw=1.8, label=f"{name} {rate(at, 3 if name == 'wanted' else 2)}")


def _finish(axes: Axes, rates: Sequence[float]) -> None:
    axes.set_xlim(rates[0], rates[-1])
    axes.xaxis.set_major_locator(LogLocator(numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"1e{math.log10(value):.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="upper center", bbox_to_anchor=(0.43, -0.21), ncols=2, borderaxespad=0)
