"""The pictures of the study of advice."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...doctor.advise.calibration import Calibration
from ...report.panels_svg import Panel, Series, panels_svg
from ...report.study.contents import StudyFigure
from .fit import Known
from .judge import Judged

_BINS = 5


def figures(calibration: Sequence[Known], evaluation: Sequence[Judged], constants: Calibration) -> list[StudyFigure]:
    """Largest rates and probabilities to diverge, each predicted and found."""
    return [_rates_figure(calibration, evaluation, constants), _chances_figure(evaluation)]


def _rates_figure(calibration: Sequence[Known], evaluation: Sequence[Judged], constants: Calibration) -> StudyFigure:
    def points(label: str, hue: int, pairs: Sequence[tuple[float, float]]) -> Series:
        return Series(label=label, kind="points", hue=hue, x=[x for x, _ in pairs], y=[y for _, y in pairs])

    fitted = [(constants.foreseen(one.facts), one.boundary) for one in calibration if one.bounded]
    ladder = [
        (one.known.case.optimizer, float(np.log10(one.foreseen)), one.known.boundary)
        for one in evaluation
        if one.known.bounded
    ]
    every = [value for pair in fitted for value in pair] + [value for _, *pair in ladder for value in pair]
    ends = (min(every), max(every))
    names = list(dict.fromkeys(name for name, _, _ in ladder))
    equal = Series(label="predicted = found", kind="claimed", hue=-1, x=ends, y=ends)
    title = "The largest rate that trains: predicted from the first update, and found by training"
    panels = [
        Panel(
            title="Fitted to",
            xlabel="predicted, log10 of the rate",
            ylabel="found, log10 of the rate",
            series=[equal, points("calibration", 1, fitted)],
        ),
        Panel(
            title="Judged by",
            xlabel="predicted, log10 of the rate",
            ylabel="found, log10 of the rate",
            series=[
                equal,
                *(points(name, hue, [(x, y) for own, x, y in ladder if own == name]) for hue, name in enumerate(names)),
            ],
        ),
    ]
    return StudyFigure(
        name="rates",
        title=title,
        caption="A point a case; found is half-way between the largest rate that learned and the next one tried.",
        svg=panels_svg(panels, title=title),
        wide=True,
    )


def _chances_figure(evaluation: Sequence[Judged]) -> StudyFigure:
    runs = sorted((one.chances[step], bad) for one in evaluation for step, bad in one.known.labels().items())
    edges = np.linspace(0, 1, _BINS + 1)
    bins = [
        [(chance, bad) for chance, bad in runs if low <= chance and (chance < high or high == 1)]
        for low, high in pairwise(edges)
    ]
    filled = [some for some in bins if some]
    title = "Predicted probability to diverge, and the share that did"
    return StudyFigure(
        name="chances",
        title=title,
        caption="Trainings of the evaluation in fifths of the predicted probability; the dotted line is where "
        "both agree. " + "Trainings in each: " + ", ".join(str(len(some)) for some in filled) + ".",
        svg=panels_svg(
            [
                Panel(
                    title="Reliability",
                    xlabel="predicted probability",
                    ylabel="share that diverged",
                    series=[
                        Series(label="predicted = found", kind="claimed", hue=-1, x=(0, 1), y=(0, 1)),
                        Series(
                            label="trainings",
                            kind="measured",
                            hue=0,
                            x=[float(np.mean([chance for chance, _ in some])) for some in filled],
                            y=[float(np.mean([bad for _, bad in some])) for some in filled],
                        ),
                    ],
                    from_zero=True,
                )
            ],
            title=title,
        ),
    )
