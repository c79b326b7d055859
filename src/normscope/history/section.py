"""A history as a section of the doctor's page: its pictures, and every episode in words."""

from collections.abc import Iterable, Sequence
from statistics import median

from ..doctor.report.page import EpisodeWords, HistorySection
from ..report.chart import Kind, Panel, Series
from ..report.chart_svg import panels_svg
from ..report.svg import Picture, inlined
from ..report.words import Tone
from .episodes import EpisodeKind
from .explain import Explanation, episode_head, episode_rows, history_head
from .joined import COMMAND
from .record import LoggedSeries

_MOST_NAMED = 3
_POINTS = 160
"""About so many are drawn a curve; more make the page heavy."""


def _loss(explanation: Explanation) -> Picture:
    """The training's loss over updates, validation's as points, and onsets as dotted lines."""
    loss = explanation.history.loss.finite()
    validation = explanation.history.validation_loss.finite()
    drawn = [_series("training", "measured", 0, loss, thinned(loss.values))]
    if validation:
        drawn.append(_series("validation", "points", 1, validation, range(len(validation.values))))
    caption = "The training's loss over its updates. Dotted: where an event began."
    return _picture(explanation, "loss", caption, "Loss of the training", "loss (nats)", drawn)


def _steps(explanation: Explanation) -> Picture | None:
    """Draws the size of updates: sub-layer by sub-layer, or else the whole gradient's norm; None
    without either.
    """
    ratios = {
        place: one.finite()
        for place, one in explanation.history.of_sublayers("update_ratio").items()
    }
    ratios = {place: one for place, one in ratios.items() if one}
    norm = explanation.history.gradient_norm.finite()
    if ratios:
        caption = (
            "Norm of each update over that of the weights that it changes: the median sub-layer, "
            "the range of all, and those that left their course first."
        )
        drawn = _ratios(explanation, ratios)
        return _picture(
            explanation, "steps", caption, "Updates of the sub-layers", "relative update", drawn
        )
    if not norm or min(norm.values) <= 0:
        return None
    drawn = [_series("whole gradient", "measured", 2, norm, thinned(norm.values))]
    caption = (
        "Norm of the whole gradient before it is clipped; updates of the sub-layers were not "
        "recorded (Monitor)."
    )
    return _picture(explanation, "steps", caption, "Norm of the gradient", "gradient norm", drawn)


def _ratios(explanation: Explanation, ratios: dict[str, LoggedSeries]) -> list[Series]:
    """Returns the median sub-layer with the range of all, and those in which an episode began."""
    updates = sorted({update for one in ratios.values() for update in one.updates})
    tables = [dict(zip(one.updates, one.values, strict=True)) for one in ratios.values()]
    low = []
    middle = []
    high = []
    for update in updates:
        known = [table[update] for table in tables if update in table]
        low.append(min(known))
        middle.append(median(known))
        high.append(max(known))
    leading = list(
        dict.fromkeys(place for one in explanation.episodes if (place := one.place) in ratios)
    )[:_MOST_NAMED]
    return [
        Series(
            label="median sub-layer",
            kind="measured",
            hue=-1,
            x=updates,
            y=middle,
            low=low,
            high=high,
        ),
        *(
            _series(place, "measured", hue, ratios[place], range(len(ratios[place].updates)))
            for hue, place in enumerate(leading, 1)
        ),
    ]


def _series(label: str, kind: Kind, hue: int, of: LoggedSeries, kept: Iterable[int]) -> Series:
    places = list(kept)
    return Series(
        label=label,
        kind=kind,
        hue=hue,
        x=[of.updates[i] for i in places],
        y=[of.values[i] for i in places],
    )


def _picture(
    explanation: Explanation,
    name: str,
    caption: str,
    title: str,
    ylabel: str,
    drawn: Sequence[Series],
) -> Picture:
    """Draws a picture with a line at each onset, and the events in its title for those who hear
    it.
    """
    values = [
        value for one in drawn for value in (*one.y, *one.low, *one.high) if value is not None
    ] or [0.0]
    ends = [min(values), max(values)]
    onsets = [
        Series(label="onset", kind="claimed", hue=-1, x=[one.onset, one.onset], y=ends)
        for one in explanation.episodes
    ]
    words = "; ".join(
        f"{one.kind} from update {one.onset}, {one.cause}" for one in explanation.episodes
    )
    panel = Panel(
        title="", xlabel="update", ylabel=ylabel, series=[*drawn, *onsets], log_y=ends[0] > 0
    )
    svg = panels_svg([panel], title=f"{title}: {words or 'no spike and no plateau'}", columns=1)
    return Picture(svg=inlined(svg, f"history-{name}"), caption=caption)


def thinned(values: Sequence[float]) -> list[int]:
    """Returns the places of the lowest and the highest of every few values: a spike of one update
    is not thinned away.
    """
    every = -(-len(values) // _POINTS) or 1
    groups = [
        range(start, min(start + every, len(values))) for start in range(0, len(values), every)
    ]
    return sorted({edge(group, key=values.__getitem__) for group in groups for edge in (min, max)})


def section(explanation: Explanation, verdict: Sequence[tuple[str, str]] = ()) -> HistorySection:
    """Returns what to do, and all events, where a terminal has room for some."""
    return HistorySection(
        head=history_head(explanation),
        first=verdict[0][1] if verdict else "",
        command=dict(verdict).get(COMMAND, ""),
        episodes=(
            *(
                EpisodeWords(head=words, tone=Tone.BAD, rows=tuple(verdict[1:]))
                for _, words in verdict[:1]
            ),
            *(
                EpisodeWords(
                    head=episode_head(one),
                    tone=Tone.INFO
                    if one.kind in (EpisodeKind.SPIKE, EpisodeKind.NOTE)
                    else Tone.MIXED,
                    rows=tuple(episode_rows(one)),
                )
                for one in explanation.episodes
            ),
        ),
        pictures=tuple(filter(None, (_loss(explanation), _steps(explanation)))),
    )
