"""The loss of a training as a picture, with a line at every onset."""

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ...report.lines import POINTS, log_scale
from ...report.svg import HUES, INK, house_style, to_svg
from .explain import Explanation


def history_svg(explanation: Explanation) -> str:
    """The training's loss over updates on a logarithmic scale, validation's as points, and onsets as dashed lines."""
    history = explanation.history
    loss = history.loss.finite()
    with house_style():
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        step = max(1, len(loss.updates) // (4 * POINTS))
        axes.plot(loss.updates[::step], loss.values[::step], color=HUES[0], lw=1.2, label="training")
        if validation := history.validation_loss.finite():
            axes.plot(validation.updates, validation.values, color=HUES[1], ls="", marker="o", label="validation")
        for number, one in enumerate(explanation.episodes):
            axes.axvline(one.onset, color=INK, lw=1, ls=(0, (4, 3)), label="" if number else "onset")
        if loss and min(loss.values) > 0:
            log_scale(axes)
        axes.set_xlabel("update")
        axes.set_ylabel("loss (nats)")
        axes.legend(loc="upper right")
        words = [f"{one.kind} from update {one.onset}, {one.cause}" for one in explanation.episodes]
        return to_svg(figure, title="Loss of the training", desc="; ".join(words) or "no spike and no plateau")
