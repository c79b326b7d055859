"""Pictures of a diagnosis: a stack over depth, and what a learning rate does to the model."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..numbers import learning_rate, probability
from ..panels_svg import Kind, Panel, Series, panels_svg
from ..svg import HUES, INK, house_style, to_svg
from ..words import kind_name
from .contents import Advice, Prediction, Stack, SublayerMeasurements
from .depth import depths, finite, positive
from .words import RATE_NAMES, AdvisedRate, figures, stack_title

_WIDTH_INCHES, _HEIGHT_INCHES = 4.6, 4.4
_LEAST_RATIO = 8.0
"""Least ratio between the ends of a logarithmic axis, so that a level curve looks level and two ticks lie between."""
_ROOM = 1.25
"""Factor between the curves and the ends of a logarithmic axis."""
_SMALL_SHARE = 0.1
_RISE_SHOWN = 1.0
"""How far a loss is drawn above that of the model as it is, in units of how far it falls."""


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
    predicted: Callable[[Prediction], Sequence[float | None]],
) -> list[Series]:
    """What is a number of the stream itself, where each sub-layer reads it."""
    values = [scale(measured(sublayer.measured)) for sublayer in stack.sublayers]
    return _both("measured", "theory", 0, stack, values, _predicted(stack, scale, predicted), range(len(values)))


def _shares(stack: Stack) -> Panel | None:
    """Energy ratios; on a logarithmic axis where all are so small that they would lie at the bottom of a linear one."""
    shares = [finite(sublayer.measured.share) for sublayer in stack.sublayers]
    small = 0 < max((share for share in shares if share is not None), default=0.0) < _SMALL_SHARE
    values = [positive(share) for share in shares] if small else shares
    series: list[Series] = []
    for hue, (kind, members) in enumerate(_kinds(stack).items()):
        series += _both(kind_name(kind), "", hue, stack, values, None, members)
    return _panel(stack, series, title="Branch-to-stream energy ratio", ylabel="‖F‖² / (‖F‖² + ‖x‖²)", log_y=small)


def _gradients(stack: Stack) -> Panel | None:
    series: list[Series] = []
    predicted = _predicted(stack, positive, lambda p: p.gradient_norm)
    values = [positive(sublayer.measured.gradient_norm) for sublayer in stack.sublayers]
    for hue, (kind, members) in enumerate(_kinds(stack).items()):
        series += _both(kind_name(kind), "theory", hue, stack, values, predicted, members)
    return _panel(stack, series, title="Gradient norm of a sub-layer", ylabel="Frobenius norm", log_y=True)


def _kinds(stack: Stack) -> dict[str, list[int]]:
    kinds: dict[str, list[int]] = {}
    for i, sublayer in enumerate(stack.sublayers):
        kinds.setdefault(sublayer.kind, []).append(i)
    return kinds


def _predicted(
    stack: Stack, scale: _Scale, of: Callable[[Prediction], Sequence[float | None]]
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


@house_style()
def loss_picture(advice: Advice, loss_nats: float | None) -> str:
    """Draw the loss after one update at each rate beside the loss before it; losses far above that are cut off."""
    rates, losses = advice.rates, [finite(loss) for loss in advice.loss_along_step]
    figure, axes = _axes("loss (nats per token)")
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
        axes.axhline(loss_nats, color=INK, lw=1.0, ls=(0, (1.2, 1.8)), label="loss before the update", zorder=1.5)
        if known:
            fall = max(loss_nats - min(known), 0.02 * loss_nats)
            axes.set_ylim(min(known) - 0.12 * fall, min(max(*known, loss_nats), loss_nats + _RISE_SHOWN * fall))
    _rates(axes, advice)
    _finish(axes, rates)
    pairs = [f"{learning_rate(at)}: {figures(loss)}" for at, loss in zip(rates, losses, strict=True)]
    return to_svg(figure, title="Loss along the first update against the rate", desc="; ".join(pairs))


@house_style()
def chance_picture(advice: Advice) -> str:
    """Draw the chance that a constant rate diverges, from 0 to 1."""
    rates, chances = advice.rates, advice.chances
    figure, axes = _axes("chance of divergence")
    axes.plot(rates, chances, color=HUES[0], lw=2.2, label="without warm-up")
    axes.fill_between(rates, chances, color=HUES[0], alpha=0.1, lw=0)
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    wanted, chance = advice.wanted_rate, advice.divergence_chance
    if wanted is not None and chance is not None:
        axes.plot([wanted], [chance], color=INK, marker="o", ms=7, ls="", zorder=4)
    _rates(axes, advice)
    _finish(axes, rates)
    pairs = [f"{learning_rate(at)}: {probability(value)}" for at, value in zip(rates, chances, strict=True)]
    return to_svg(figure, title="Chance of divergence against the rate", desc="; ".join(pairs))


def _axes(ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH_INCHES, _HEIGHT_INCHES))
    axes = figure.add_axes((0.2, 0.46, 0.76, 0.52))  # fixed: two pictures side by side have their axes in line
    axes.set(xscale="log", xlabel="learning rate", ylabel=ylabel)
    return figure, axes


def _rates(axes: Axes, advice: Advice) -> None:
    """A line at each rate that the advice is about, and a band over the 95 % range of the largest stable one."""
    stable, factor = advice.safe_rate, advice.factor
    axes.axvspan(stable / factor, stable * factor, color=HUES[2], alpha=0.13, lw=0, zorder=0.5)
    lines = (
        (AdvisedRate.STABLE, stable, 2, HUES[2], "-"),
        (AdvisedRate.LOWEST_LOSS, advice.critical_rate, 2, HUES[1], (0, (5, 1.5))),
        (AdvisedRate.YOURS, advice.wanted_rate, 3, INK, (0, (1.5, 1.3))),
    )
    for which, at, digits, color, dash in lines:
        if at is not None:
            name = f"{RATE_NAMES[which]} {learning_rate(at, digits)}"
            axes.axvline(at, color=color, ls=dash, lw=1.8, label=name)


def _finish(axes: Axes, rates: Sequence[float]) -> None:
    axes.set_xlim(rates[0], rates[-1])
    axes.xaxis.set_major_locator(LogLocator(numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"1e{math.log10(value):.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="upper center", bbox_to_anchor=(0.43, -0.21), borderaxespad=0)
