"""A history as a section of the doctor's page: its pictures, and every episode in words."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ..doctor.report.page import EpisodeWords, HistorySection
from ..report.lines import POINTS, log_scale
from ..report.svg import HUES, INK, Picture, house_style, inlined, to_svg
from ..report.words import Tone
from .episodes import EpisodeKind
from .explain import NOTE, Explanation, episode_head, episode_rows, history_head
from .record import LoggedSeries

_SIZE_INCHES = (4.6, 3.5)
_MOST_NAMED = 3


def loss_svg(explanation: Explanation) -> str:
    """The training's loss over updates on a logarithmic scale, validation's as points, and onsets as dashed lines."""
    history = explanation.history
    with _picture(explanation, "loss (nats)") as (figure, axes):
        loss = history.loss.finite()
        _line(axes, loss, HUES[0], "training")
        if validation := history.validation_loss.finite():
            axes.plot(validation.updates, validation.values, color=HUES[1], ls="", marker="o", label="validation")
        if loss and min(loss.values) > 0:
            log_scale(axes)
        words = [f"{one.kind} from update {one.onset}, {one.cause}" for one in explanation.episodes]
        return to_svg(_named(figure), title="Loss of the training", desc="; ".join(words) or "no spike and no plateau")


def steps_svg(explanation: Explanation) -> tuple[str, str] | None:
    """How far updates go and a caption: sub-layer by sub-layer, or else the whole gradient's norm; None without."""
    ratios = {place: one.finite() for place, one in explanation.history.of_sublayers("update_ratio").items()}
    ratios = {place: one for place, one in ratios.items() if one}
    norm = explanation.history.gradient_norm.finite()
    if ratios:
        return _ratios_svg(explanation, ratios), (
            "Norm of each update over that of the weights that it changes: the median sub-layer, the range of all, and "
            "those that left their course first."
        )
    if not norm or min(norm.values) <= 0:
        return None
    with _picture(explanation, "gradient norm") as (figure, axes):
        _line(axes, norm, HUES[2], "whole gradient")
        log_scale(axes)
        svg = to_svg(_named(figure), title="Norm of the gradient", desc="over updates, before it is clipped")
    return (
        svg,
        "Norm of the whole gradient before it is clipped; updates of the sub-layers were not recorded (Monitor).",
    )


def _ratios_svg(explanation: Explanation, ratios: dict[str, LoggedSeries]) -> str:
    with _picture(explanation, "relative update") as (figure, axes):
        updates = sorted({update for one in ratios.values() for update in one.updates})
        known = [[v for one in ratios.values() if (v := _at(one, update)) is not None] for update in updates]
        axes.fill_between(updates, [min(some) for some in known], [max(some) for some in known], color=INK, alpha=0.12)
        axes.plot(updates, [median(some) for some in known], color=INK, lw=1.2, label="median sub-layer")
        leading = [place for one in explanation.episodes if (place := one.place) in ratios]
        for hue, place in zip(HUES[1:], list(dict.fromkeys(leading))[:_MOST_NAMED], strict=False):
            axes.plot(ratios[place].updates, ratios[place].values, color=hue, lw=1.4, label=place)
        if min(map(min, known)) > 0:
            log_scale(axes)
        return to_svg(_named(figure), title="Updates of the sub-layers", desc="; ".join(dict.fromkeys(leading)))


@contextmanager
def _picture(explanation: Explanation, quantity: str) -> Iterator[tuple[Figure, Axes]]:
    with house_style():
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for number, one in enumerate(explanation.episodes):
            axes.axvline(one.onset, color=INK, lw=1, ls=(0, (4, 3)), label="" if number else "onset")
        axes.set_xlabel("update")
        axes.set_ylabel(quantity)
        yield figure, axes


def _named(figure: Figure) -> Figure:
    """With its legend below, where it hides nothing."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    ordered = sorted(zip(handles, labels, strict=True), key=lambda pair: pair[1] == "onset")
    figure.legend(*zip(*ordered, strict=True), loc="outside lower center", ncols=1 if max(map(len, labels)) > 20 else 3)
    return figure


def _line(axes: Axes, series: LoggedSeries, color: str, label: str) -> None:
    kept = thinned(series.values)
    axes.plot([series.updates[i] for i in kept], [series.values[i] for i in kept], color=color, lw=1.2, label=label)


def thinned(values: Sequence[float]) -> list[int]:
    """Places of the lowest and the highest of every few values: a spike of one update is not thinned away."""
    every = -(-len(values) // POINTS) or 1
    groups = [range(start, min(start + every, len(values))) for start in range(0, len(values), every)]
    return sorted({edge(group, key=values.__getitem__) for group in groups for edge in (min, max)})


def _at(series: LoggedSeries, update: int) -> float | None:
    return next((v for u, v in zip(series.updates, series.values, strict=True) if u == update), None)


def section(explanation: Explanation, verdict: Sequence[tuple[str, str]] = ()) -> HistorySection:
    """What to do, and all episodes, where a terminal has room for some."""
    pictures = [
        ("loss", loss_svg(explanation), "The training's loss over its updates. Dashed: where an episode began.")
    ]
    if (steps := steps_svg(explanation)) is not None:
        picture, caption = steps
        pictures.append(("steps", picture, caption))
    return HistorySection(
        head=history_head(explanation),
        first=verdict[0][1] if verdict else "",
        episodes=(
            *(EpisodeWords(head=words, tone=Tone.BAD, rows=tuple(verdict[1:])) for _, words in verdict[:1]),
            *(
                EpisodeWords(
                    head=episode_head(one),
                    tone=Tone.INFO if one.kind in (EpisodeKind.SPIKE, NOTE) else Tone.MIXED,
                    rows=tuple(episode_rows(one)),
                )
                for one in explanation.episodes
            ),
        ),
        pictures=tuple(
            Picture(svg=inlined(svg, f"history-{name}"), caption=caption) for name, svg, caption in pictures
        ),
    )
