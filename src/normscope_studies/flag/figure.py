"""What tells the wiring of every checkpoint under the wrong flag: its weights, and its losses under both."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from normscope.doctor.lint.checks.training import LEAST_DIFFERENCE, SHIFTS_TOGETHER
from normscope.report.svg import HUES, INK, house_style, to_svg

from .rows import Checkpoint

_DOTTED = (0, (1, 2))


def differences_svg(checkpoints: Sequence[Checkpoint]) -> str:
    """checkpoints: under the wrong flag."""
    with house_style():
        figure = Figure(figsize=(9, 4), layout="constrained")
        FigureCanvasSVG(figure)
        of_weights, of_losses = figure.subplots(1, 2)
        _points(of_weights, [(one, one.difference, one.shifts, bool(one.said_of_weights)) for one in checkpoints])
        for edge in (-LEAST_DIFFERENCE, LEAST_DIFFERENCE):
            of_weights.axvline(edge, color=INK, lw=1, ls=_DOTTED)
        of_weights.axhline(SHIFTS_TOGETHER, color=INK, lw=1, ls=_DOTTED)
        of_weights.set_xlabel("gains: own − following")
        of_weights.set_ylabel("shifts and biases")
        of_weights.set_title("weights alone")
        _points(of_losses, [(one, one.loss_nats, one.rewired_loss_nats, bool(one.said)) for one in checkpoints])
        ends = [min(one.rewired_loss_nats for one in checkpoints), max(one.loss_nats for one in checkpoints)]
        of_losses.plot(ends, ends, color=INK, lw=1, ls=_DOTTED)
        of_losses.set_xlabel("loss as loaded (nats)")
        of_losses.set_ylabel("loss wired the other way (nats)")
        of_losses.set_title("with a batch of text")
        handles, labels = of_weights.get_legend_handles_labels()
        more, others = of_losses.get_legend_handles_labels()
        named = dict(zip([*labels, *others], [*handles, *more], strict=True))
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=2)
        return to_svg(
            figure,
            title="Checkpoints under the wrong flag, by their weights and by their losses",
            desc="On the left Pre-LN's lie to the right and Post-LN's above; on the right all lie below the line.",
        )


def _points(axes: Axes, places: Sequence[tuple[Checkpoint, float, float, bool]]) -> None:
    """places: of each checkpoint, with whether it is found there."""
    for hue, trained in zip(HUES, dict.fromkeys(one.trained for one, *_ in places), strict=False):
        for found in (True, False):
            some = [(x, y) for one, x, y, is_found in places if one.trained == trained and is_found is found]
            if some:
                axes.plot(
                    *zip(*some, strict=True),
                    ls="",
                    marker="o",
                    color=hue,
                    markerfacecolor=hue if found else "none",
                    label=f"trained as {trained}, {'found' if found else 'not found'}",
                )
