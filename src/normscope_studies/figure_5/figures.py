"""Figure 5's panels as the paper lays them out, and the loss in its parts."""

from collections.abc import Mapping, Sequence

from normscope.evidence.estimates import estimate
from normscope.measure import Estimate
from normscope.report.chart import Panel, Series

from ..engine.page import StudyFigure
from .config import PLACEMENTS
from .curves import Arm, Chance, Curve, Curves
from .tuning import Tuned

_TUNED_CAPTION = (
    " (b), (c): accuracy of fine-tuned checkpoints on the development set, with 95 % intervals over fine-tuning seeds."
)
_HALF_WIDTH = 0.3
_MAJORITY = "always the more frequent label"
_UNIGRAM = "unigram baseline"
_ALWAYS = "always the same answer"


def figures(curves: Curves, chance: Chance, tuned: Mapping[str, Tuned]) -> list[StudyFigure]:
    panels = [_loss_panel(curves), *(_accuracy_panel(task, one, curves) for task, one in tuned.items())]
    return [
        StudyFigure.of_panels(
            name="figure_5",
            title="Figure 5, in the paper's layout",
            caption="(a): validation loss of masked tokens and next sentences over updates, mean over seeds with the "
            "range of all of them." + (_TUNED_CAPTION if tuned else ""),
            panels=panels,
            told="Validation loss and accuracy over updates of pre-training",
            wide=True,
        ),
        StudyFigure.of_panels(
            name="parts",
            title="The loss in its parts",
            caption="Of masked tokens, beside the unigram entropy of the validation text; and the "
            "accuracy on next sentences, beside that of always giving the more frequent answer. Mean over seeds "
            "with the range of all of them.",
            panels=_part_panels(curves, chance),
            told="Masked-token loss and next sentences over updates",
            wide=True,
        ),
    ]


def _loss_panel(curves: Curves) -> Panel:
    series = [_over_seeds(arm, hue, runs, [run.loss_nats for run in runs]) for hue, (arm, runs) in _hued(curves)]
    return Panel(title="(a) validation loss", xlabel="updates", ylabel="nats", series=series)


def _part_panels(curves: Curves, chance: Chance) -> list[Panel]:
    masked = [_over_seeds(arm, hue, runs, [run.nll_nats for run in runs]) for hue, (arm, runs) in _hued(curves)]
    pairs = [
        _over_seeds(arm, hue, runs, [run.next_sentence_accuracy for run in runs]) for hue, (arm, runs) in _hued(curves)
    ]
    x = list(next(iter(curves.values()))[0].updates)
    ends = [x[0], x[-1]]
    masked.append(Series(label=_UNIGRAM, kind="claimed", hue=-1, x=ends, y=[chance.nll_nats] * 2))
    pairs.append(Series(label=_ALWAYS, kind="claimed", hue=-1, x=ends, y=[chance.next_sentence_accuracy] * 2))
    return [
        Panel(title="masked tokens", xlabel="updates", ylabel="nats per masked token", series=masked),
        Panel(title="next sentences", xlabel="updates", ylabel="accuracy", series=pairs),
    ]


def _accuracy_panel(task: str, tuned: Tuned, curves: Curves) -> Panel:
    letter = "b" if task == "mrpc" else "c"
    title = f"({letter}) {task.upper()}"
    updates = sorted({update for _, update in tuned.points})
    if len(updates) == 1:
        return _side_by_side(title, updates[0], tuned, curves)
    series = []
    for hue, (arm, _) in _hued(curves):
        points = {update: estimate(point.accuracies) for (of, update), point in tuned.points.items() if of == arm}
        if points:
            series.append(_with_interval(arm.title, hue, points))
    ends = [float(updates[0]), float(updates[-1])]
    series.append(Series(label=_MAJORITY, kind="claimed", hue=-1, x=ends, y=[tuned.majority] * 2))
    return Panel(title=title, xlabel="updates", ylabel="accuracy", series=series)


def _side_by_side(title: str, update: int, tuned: Tuned, curves: Curves) -> Panel:
    """One checkpoint an arm has no curve: each arm gets a place of its own, and its interval a width to be seen by."""
    arms = [(hue, arm) for hue, (arm, _) in _hued(curves) if (arm, update) in tuned.points]
    series = []
    for place, (hue, arm) in enumerate(arms):
        found = estimate(tuned.points[arm, update].accuracies)
        series.append(
            Series(
                label=arm.title,
                kind="measured",
                hue=hue,
                x=[place - _HALF_WIDTH, place, place + _HALF_WIDTH],
                y=[float(found.mean)] * 3,
                low=[float(found.low)] * 3,
                high=[float(found.high)] * 3,
            )
        )
    ends = [-0.5, len(arms) - 0.5]
    series.append(Series(label=_MAJORITY, kind="claimed", hue=-1, x=ends, y=[tuned.majority] * 2))
    ticks = [PLACEMENTS[arm.placement] for _, arm in arms]
    xlabel = f"pre-trained for {update:,} updates"
    return Panel(title=title, xlabel=xlabel, ylabel="accuracy", series=series, ticks=ticks)


def _with_interval(label: str, hue: int, points: Mapping[int, Estimate]) -> Series:
    return Series(
        label=label,
        kind="measured",
        hue=hue,
        x=list(points),
        y=[float(point.mean) for point in points.values()],
        low=[float(point.low) for point in points.values()],
        high=[float(point.high) for point in points.values()],
    )


def _over_seeds(arm: Arm, hue: int, runs: Sequence[Curve], values: Sequence[Sequence[float]]) -> Series:
    """Mean and range over seeds; a run that stopped early ends the curve."""
    length = min(len(row) for row in values)
    columns = [[row[i] for row in values] for i in range(length)]
    return Series(
        label=arm.title,
        kind="measured",
        hue=hue,
        x=list(runs[0].updates[:length]),
        y=[sum(column) / len(column) for column in columns],
        low=[min(column) for column in columns],
        high=[max(column) for column in columns],
    )


def _hued(curves: Curves) -> list[tuple[int, tuple[Arm, list[Curve]]]]:
    return list(enumerate(curves.items()))
