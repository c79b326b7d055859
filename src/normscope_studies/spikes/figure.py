"""The losses of all trainings, one small panel each."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from normscope.report.svg import HUES, INK, house_style, to_svg

from .config import SpikesConfig

_COLUMNS = 4


def losses_svg(trainings: Mapping[str, Mapping[str, Any]], config: SpikesConfig) -> str:
    """trainings: by name, then by loop."""
    rows = -(-len(trainings) // _COLUMNS)
    with house_style():
        figure = Figure(figsize=(12, 2.4 * rows), layout="constrained")
        FigureCanvasSVG(figure)
        grid = figure.subplots(rows, min(_COLUMNS, len(trainings)), squeeze=False, sharex=True)
        for axes, (name, loops) in zip(grid.flat, trainings.items(), strict=False):
            for hue, (loop, piece) in zip(HUES, loops.items(), strict=False):
                values = [np.nan if value is None else value for value in piece["loss"]]
                axes.plot(range(1, len(values) + 1), values, color=hue, lw=1.2, label=loop)
                for episode in piece["episodes"]:
                    axes.axvline(episode["onset"], color=hue, lw=1, ls=(0, (4, 3)))
                if piece["onset"] == config.change_at:
                    axes.axvline(piece["onset"], color=INK, lw=1, ls=(0, (1, 2)))
            axes.set_title(name, fontsize=12)
        for axes in list(grid.flat)[len(trainings) :]:
            axes.set_visible(False)
        grid.flat[0].legend()
        figure.supxlabel("update")
        figure.supylabel("loss (nats)")
        words = ", ".join(trainings)
        return to_svg(
            figure, title="Losses of trainings broken on purpose and of healthy ones", desc=f"Panels: {words}."
        )
