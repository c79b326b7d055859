"""Where every run ended: one row a group, a mark for each variant, the best at the top."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..lines import Style, styles_for
from ..svg import INK, house_style, to_svg
from .contents import Arm

_WIDTH_INCHES, _ROW_INCHES = 5.6, 0.3
_CEILING = 1.3
"""Losses above so many times chance, and runs that stopped at a non-finite value, stand at the right edge."""


@house_style()
def endings_svg(arms: Sequence[Arm], *, chance: float | None, title: str = "Validation loss at the end") -> str:
    """Last validation loss of each arm: a large mark for the mean of its seeds, small ones for the seeds.

    Groups are the arms' placements, variants all else that differs. chance: drawn as a dashed line.
    """
    groups = sorted({arm.placement for arm in arms}, key=lambda group: min(map(_ending, _of(arms, group))))
    variants = list(dict.fromkeys(_variant(arm) for arm in arms))
    looks = styles_for(f"{variant}|{variant}" for variant in variants)
    figure = Figure(figsize=(_WIDTH_INCHES, 1.3 + _ROW_INCHES * len(groups)), layout="constrained")
    axes = figure.add_subplot()
    finite = [loss for arm in arms for loss in _losses(arm) if math.isfinite(loss)]
    edge = max(finite, default=1.0)
    if chance is not None and math.isfinite(chance):
        edge = min(edge, _CEILING * chance)
        axes.axvline(chance, color=INK, lw=1.2, ls=(0, (7, 4)), zorder=1.5)
    for row, group in enumerate(groups):
        for arm in _of(arms, group):
            variant = _variant(arm)
            # Variants side by side: where they end at the same loss both can be seen.
            y = row + 0.18 * (variants.index(variant) - (len(variants) - 1) / 2) / max(1, len(variants) - 1)
            _mark(axes, arm, y, edge, looks[f"{variant}|{variant}"])
    for label in axes.set_yticks(range(len(groups)), labels=groups):
        label.label1.set_parse_math(False)
    axes.set_ylim(max(1, len(groups)) - 0.5, -0.5)
    axes.set_xlabel("nats per target token")
    axes.grid(axis="y", visible=False)
    if not finite:
        axes.text(0.5, 0.5, "no values yet", ha="center", va="center", transform=axes.transAxes)
    handles = [
        Line2D([], [], ls="", marker=looks[f"{v}|{v}"].marker, ms=7, color=looks[f"{v}|{v}"].color, label=v or "runs")
        for v in variants
    ]
    if chance is not None and math.isfinite(chance):
        handles.append(Line2D([], [], color=INK, lw=1.2, ls=(0, (7, 4)), label="chance (unigram)"))
    if any(not loss <= edge for arm in arms for loss in _losses(arm)):
        handles.append(Line2D([], [], ls="", marker="x", ms=8, mew=2, color=INK, label="beyond the edge"))
    if handles:
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=2, columnspacing=1.6)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a label may hold a dollar sign
    return to_svg(figure, title=title, desc=". ".join(f"{arm.label}: {_told(arm)}" for arm in arms))


def _mark(axes: Axes, arm: Arm, y: float, edge: float, look: Style) -> None:
    losses = _losses(arm)
    inside = [loss for loss in losses if loss <= edge]
    axes.plot(inside, [y] * len(inside), ls="", marker=look.marker, ms=3.5, color=look.color, alpha=0.55)
    if inside:
        mean = math.fsum(inside) / len(inside)
        axes.plot([mean], [y], ls="", marker=look.marker, ms=7, color=look.color, zorder=3)
    if len(inside) < len(losses):
        axes.plot([edge], [y], ls="", marker="x", ms=8, mew=2, color=look.color, zorder=4, clip_on=False)


def _losses(arm: Arm) -> list[float]:
    return [seed.valid_loss_nats for seed in arm.seeds if seed.valid_loss_nats is not None]


def _ending(arm: Arm) -> float:
    """The mean over seeds by which groups are put in order; infinite where a seed did not get there."""
    losses = _losses(arm)
    return math.fsum(losses) / len(losses) if losses and all(map(math.isfinite, losses)) else math.inf


def _of(arms: Sequence[Arm], group: str) -> list[Arm]:
    return [arm for arm in arms if arm.placement == group]


def _variant(arm: Arm) -> str:
    return arm.label.removeprefix(arm.placement).removeprefix(", ")


def _told(arm: Arm) -> str:
    losses = _losses(arm)
    return ", ".join(f"{loss:.4g}" if math.isfinite(loss) else "non-finite" for loss in losses) or "no value"
