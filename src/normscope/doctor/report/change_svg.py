"""A picture of what the first update changes over depth: the stream, and each sub-layer of its own and by its input."""

from collections.abc import Sequence

from ...report.chart import Panel, Series
from ...report.chart_svg import panels_svg
from ..record import Stack
from ..result import FirstChange, StackChange
from .depth import positive
from .words import stack_title

_CURVES = (("stream", "x"), ("own", "F, own"), ("amplified", "F, amplified"))


def change_picture(change: FirstChange, stacks: Sequence[Stack]) -> str | None:
    """A panel a stack, over its sub-layers; None where nothing changes that a logarithm takes."""
    pairs = zip(change.stacks, stacks, strict=True)
    panels = [panel for of, stack in pairs if (panel := _panel(of, stack_title(stack), several=len(stacks) > 1))]
    return panels_svg(panels, title="Change by the first update over the sub-layers") if panels else None


def _panel(of: StackChange, name: str, *, several: bool) -> Panel | None:
    series = [
        Series(
            label=label,
            kind="measured",
            hue=hue,
            x=[float(place) for place in range(1, len(of.own) + 1)],
            y=[positive(value) for value in getattr(of, field)],
        )
        for hue, (field, label) in enumerate(_CURVES)
    ]
    if not any(value is not None for one in series for value in one.y):
        return None
    title = "Change by the first update" + (f", {name}" if several else "")
    return Panel(title=title, xlabel="sub-layer", ylabel="E‖change‖² / d", series=series, log_y=True)
