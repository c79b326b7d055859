"""The pictures of the study of advice."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from normscope.report.chart import Panel, Series

from ..engine.page import StudyFigure
from .judge import Judged, Named

_BINS = 5


def figures(judged: Sequence[Judged]) -> list[StudyFigure]:
    """Best rates and chances to be stuck, each foreseen and found."""
    return [_rates(judged), _chances(judged)]


def _rates(judged: Sequence[Judged]) -> StudyFigure:
    found = [one.known.best for one in judged]
    asked: dict[str, Callable[[Judged], Named]] = {
        "Instant advice": lambda one: one.instant,
        "Probe": lambda one: one.probe,
    }
    for name in judged[0].finders:
        asked[name] = lambda one, name=name: one.finders[name]  # type: ignore[misc]
    ends = (min(found) - 0.3, max(found) + 0.3)
    title = "The best rate: named without a long training, and found by trainings"
    panels = [
        Panel(
            title=name,
            xlabel="named, log10 of the rate",
            ylabel="best, log10 of the rate",
            series=[
                Series(label="named = best", kind="claimed", hue=-1, x=ends, y=ends),
                *(
                    _points(optimizer, hue, [(one, of(one)) for one in judged if one.known.case.optimizer == optimizer])
                    for hue, optimizer in enumerate(sorted({one.known.case.optimizer for one in judged}))
                ),
            ],
        )
        for name, of in asked.items()
    ]
    return StudyFigure.of_panels(
        name="rates",
        title=title,
        caption="A point a case, judged by constants that were fitted without its family. Range tests have as many "
        "updates as probes.",
        panels=panels,
        told=title,
        wide=True,
    )


def _points(label: str, hue: int, pairs: Sequence[tuple[Judged, Named]]) -> Series:
    seen = [(named.rate, one.known.best) for one, named in pairs if named.rate is not None]
    return Series(label=label, kind="points", hue=hue, x=[x for x, _ in seen], y=[y for _, y in seen])


def _chances(judged: Sequence[Judged]) -> StudyFigure:
    runs = sorted(pair for one in judged for pair in one.chances)
    edges = np.linspace(0, 1, _BINS + 1)
    bins = [
        [(chance, bad) for chance, bad in runs if low <= chance and (chance < high or high == 1)]
        for low, high in pairwise(edges)
    ]
    filled = [some for some in bins if some]
    title = "The chance to be stuck: foreseen, and how many were"
    panel = Panel(
        title=title,
        xlabel="foreseen chance",
        ylabel="share that was stuck",
        series=[
            Series(label="foreseen = found", kind="claimed", hue=-1, x=(0.0, 1.0), y=(0.0, 1.0)),
            Series(
                label="trainings, in five bins",
                kind="points",
                hue=1,
                x=[float(np.mean([chance for chance, _ in some])) for some in filled],
                y=[float(np.mean([bad for _, bad in some])) for some in filled],
            ),
        ],
    )
    return StudyFigure.of_panels(
        name="chances",
        title=title,
        caption="Trainings at and above the best rate of each case, by constants fitted without its family.",
        panels=[panel],
        told=title,
    )
