"""How far the model types came, as bars."""

from collections.abc import Sequence

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from normscope.report.svg import HUES, INK, house_style, to_svg


def stages_svg(counts: Sequence[tuple[str, int]]) -> str:
    """counts: of model types by what became of them, in the order from top to bottom."""
    with house_style():
        figure = Figure(figsize=(9, 0.42 * len(counts) + 1.1), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        names, values = zip(*counts, strict=True)
        hues = [HUES[0] if name.startswith("diagnosed") else INK for name in names]
        bars = axes.barh(range(len(values)), values, color=hues, alpha=0.85, height=0.65)
        axes.bar_label(bars, padding=4)
        axes.set_yticks(range(len(names)), labels=names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("model types")
        words = ", ".join(f"{name} {value}" for name, value in counts)
        return to_svg(figure, title="What became of every model type", desc=words)
