"""The final loss over the learning rate: what a comparison at a single rate hides."""

from collections.abc import Sequence

import numpy as np
from matplotlib.lines import Line2D

from ..lines import draw_line, rate_scale, seed_mean, seed_table, short, styles_for, too_many
from ..numbers import learning_rate
from ..svg import INK, house_style, to_svg
from .contents import RateCurve
from .panels import rate_panels
from .plots import canvas, finish

# S = seeds, R = rates
_YLABEL = "nats per target token"


@house_style()
def rates_svg(
    curves: Sequence[RateCurve],
    *,
    baseline: float | None = None,
    title: str = "Validation loss at the end over the learning rate",
) -> str:
    """Draw the mean over seeds, a band from the lowest to the highest, and a cross where a run counts as at its start.

    baseline: the loss of the unigram baseline, drawn as a dashed line. Of more placements than there are hues each has
    a panel, without baseline or crosses.
    """
    words = ". ".join(map(_described, curves))
    names = [curve.name for curve in curves]
    if too_many(names):
        return to_svg(rate_panels(curves, ylabel=_YLABEL), title=title, desc=words)
    styles, handles, crossed = styles_for(names), list[Line2D](), False
    figure, axes = canvas(_YLABEL)
    axes.set_xlabel("peak learning rate, log scale")
    for curve in curves:
        look, values_SR = styles[curve.name], seed_table(curve.seeds_losses, len(curve.peak_lrs))
        handles.append(draw_line(axes, str(curve.name), curve.peak_lrs, values_SR, look))
        replaced_SR = np.asarray(curve.seeds_replaced, dtype=bool)
        if replaced_SR.any():
            rates_SR = np.broadcast_to(curve.peak_lrs, values_SR.shape)
            axes.plot(rates_SR[replaced_SR], values_SR[replaced_SR], ls="", marker="x", ms=9, mew=2, color=look.color)
            crossed = True
    if baseline is not None and np.isfinite(baseline):
        handles.append(axes.axhline(baseline, color=INK, lw=1.2, ls=(0, (7, 4)), label="unigram baseline", zorder=1.5))
    if crossed:
        label = "counts as the loss at initialisation"
        handles.append(Line2D([], [], ls="", marker="x", ms=9, mew=2, color=INK, label=label))
    rate_scale(axes)
    finish(figure, axes, handles, empty=not any(np.isfinite(row).any() for c in curves for row in c.seeds_losses))
    return to_svg(figure, title=title, desc=words)


def _described(curve: RateCurve) -> str:
    means_R = seed_mean(seed_table(curve.seeds_losses, len(curve.peak_lrs)))
    points = [f"{short(mean)} at {learning_rate(rate)}" for rate, mean in zip(curve.peak_lrs, means_R, strict=True)]
    return f"{curve.name}: {', '.join(points)}"
