"""Curves of arms over epochs, and their last losses over rates, as panels."""

from collections.abc import Callable, Mapping, Sequence

from normscope.report.chart import Panel, Series

from .arms import Arm
from .curves import Curve, Curves

Labelled = Mapping[str, Arm]
"""Arms of one panel by their words in the legend; the same words have the same colour in every panel of a figure."""
_UNIGRAM = "unigram baseline"
SPREAD = "mean over seeds with the range of all of them"


def loss_panel(title: str, arms: Labelled, curves: Curves, hues: Sequence[str], *, epoch: int, unigram: float) -> Panel:
    """Validation loss over epochs of `epoch` updates, above the unigram baseline. hues: all words of the figure."""
    series = _over_epochs(arms, curves, hues, epoch, lambda curve: curve.nll_nats)
    ends = [1.0, max(arm.updates for arm in arms.values()) / epoch]
    series.append(Series(label=_UNIGRAM, kind="claimed", hue=-1, x=ends, y=[unigram] * 2))
    return Panel(title=title, xlabel="epochs", ylabel="validation loss, nats", series=series)


def bleu_panel(title: str, arms: Labelled, curves: Curves, hues: Sequence[str], *, epoch: int) -> Panel:
    """BLEU over epochs."""
    series = _over_epochs(arms, curves, hues, epoch, lambda curve: curve.bleu)
    return Panel(title=title, xlabel="epochs", ylabel="BLEU", series=series, from_zero=True)


def rate_panel(title: str, kinds: Mapping[str, Sequence[Arm]], curves: Curves, hues: Sequence[str]) -> Panel:
    """The last loss over the peak rate; kinds: arms that differ in their rate alone, by their words."""
    series = []
    for words, arms in kinds.items():
        rising = sorted(arms, key=lambda arm: arm.peak_lr)
        columns = [[curve.final_nats for curve in curves[arm]] for arm in rising]
        series.append(_series(words, hues, [arm.peak_lr for arm in rising], columns))
    return Panel(title=title, xlabel="peak rate", ylabel="last validation loss, nats", series=series, log_x=True)


def _over_epochs(
    arms: Labelled, curves: Curves, hues: Sequence[str], epoch: int, values: Callable[[Curve], Sequence[float]]
) -> list[Series]:
    found = []
    for words, arm in arms.items():
        runs = curves[arm]
        # A run that stopped early ends the curve.
        if not (length := min(len(run.updates) for run in runs)):
            continue
        columns = [[values(run)[place] for run in runs] for place in range(length)]
        found.append(_series(words, hues, [update / epoch for update in runs[0].updates[:length]], columns))
    return found


def _series(words: str, hues: Sequence[str], x: Sequence[float], columns: Sequence[Sequence[float]]) -> Series:
    return Series(
        label=words,
        kind="measured",
        hue=list(hues).index(words),
        x=list(x),
        y=[sum(column) / len(column) for column in columns],
        low=[min(column) for column in columns],
        high=[max(column) for column in columns],
    )
