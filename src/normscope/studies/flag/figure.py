"""The difference of correlations of every checkpoint, by how it was trained and for how long."""

from collections.abc import Sequence

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ...doctor.lint.checks.training import LEAST_DIFFERENCE
from ...report.svg import HUES, INK, house_style, to_svg
from .rows import Checkpoint

_APART = 0.012


def differences_svg(checkpoints: Sequence[Checkpoint]) -> str:
    """checkpoints: under the wrong flag."""
    lengths = sorted({one.updates for one in checkpoints})
    with house_style():
        figure = Figure(figsize=(9, 4), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for hue, trained in zip(HUES, dict.fromkeys(one.trained for one in checkpoints), strict=False):
            for named in (True, False):
                some = [one for one in checkpoints if one.trained == trained and bool(one.said) is named]
                places = [lengths.index(one.updates) + _APART * _place(one, checkpoints) for one in some]
                axes.plot(
                    places,
                    [one.difference for one in some],
                    "o",
                    color=hue,
                    markerfacecolor=hue if named else "none",
                    label=f"trained as {trained}, {'found' if named else 'not found'}",
                )
        for edge in (-LEAST_DIFFERENCE, LEAST_DIFFERENCE):
            axes.axhline(edge, color=INK, lw=1, ls=(0, (1, 2)))
        axes.set_xticks(range(len(lengths)), [f"{updates} updates" for updates in lengths])
        axes.set_xlim(-0.5, len(lengths) - 0.5)
        axes.set_ylabel("own − following")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        return to_svg(
            figure,
            title="Differences of correlations of checkpoints under the wrong flag",
            desc="Above 0 gains of norms go with the matrices of their own sub-layers, below 0 with those of the next.",
        )


def _place(checkpoint: Checkpoint, among: Sequence[Checkpoint]) -> float:
    beside = [one for one in among if (one.trained, one.updates) == (checkpoint.trained, checkpoint.updates)]
    return beside.index(checkpoint) - (len(beside) - 1) / 2
