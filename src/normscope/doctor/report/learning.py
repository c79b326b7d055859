"""The answer of a trial by training, in words, in letters and as a picture."""

from ...report.chart import Panel, Series
from ...report.words import learning_rate, significant, sparkline
from ..learned import Learned, LearningCurve
from ..result import Record


def learning_words(diagnosis: Record) -> str:
    """Returns the answer in a sentence; "" where a trial was not asked for."""
    if diagnosis.learned is not None:
        return _answer(diagnosis.learned)
    return f"not tried: {diagnosis.unlearned}" if diagnosis.unlearned else ""


def _answer(found: Learned) -> str:
    nats = "not finite" if found.nats is None else significant(found.nats, 3)
    after = f"{nats} after {found.updates} updates"
    if found.references:
        reference = " and ".join(significant(one, 3) for one in found.references)
        beside = f"where the reference ({found.reference}) has {reference}"
    else:
        beside = "with no reference beside it"
    if found.verdict == "learns":
        return f"learns {found.task}: {after} at {learning_rate(found.rate, 2)}, {beside}"
    if found.verdict == "does not":
        return f"does not learn {found.task}: {after}, {beside}"
    return f"undecided whether it learns {found.task}: {after}; {found.reason}"


_LETTERS = 30
"""The letters of a curve at most."""


def learning_lines(diagnosis: Record, *, ascii_only: bool) -> list[str]:
    """Returns the loss of the copy, and of the reference, over the updates, in letters; none
    without a trial.
    """
    found = diagnosis.learned
    if found is None:
        return []
    longest = max([0, *found.curve.updates, *found.reference_curve.updates])
    lines = []
    for name, curve in (("model", found.curve), ("reference", found.reference_curve)):
        if curve.updates:
            letters = _letters(curve, longest, ascii_only)
            first, last = _ends(curve)
            lines.append(f"{name:9}  {letters:{_LETTERS}}  {first} to {last} nats")
    return lines


def _letters(curve: LearningCurve, longest: int, ascii_only: bool) -> str:
    """Returns a letter for each thirtieth of the longer training."""
    count = max(1, round(_LETTERS * curve.updates[-1] / longest))
    places = [round(at * (len(curve.nats) - 1) / max(1, count - 1)) for at in range(count)]
    nats = [curve.nats[place] for place in places]
    known = [float("nan") if one is None else one for one in nats]
    return sparkline(known, ascii_only=ascii_only)


def _ends(curve: LearningCurve) -> tuple[str, str]:
    known = [one for one in curve.nats if one is not None]
    if not known:
        return "not finite", "not finite"
    return significant(known[0], 3), significant(known[-1], 3)


def learning_panel(found: Learned) -> Panel:
    """Returns both losses over the updates, and that of guessing."""
    series = [Series(label="the model", hue=0, x=found.curve.updates, y=found.curve.nats)]
    if found.reference_curve.updates:
        beside = found.reference_curve
        name = f"the reference, {found.reference}" if found.reference else "the reference"
        series.append(Series(label=name, hue=2, x=beside.updates, y=beside.nats))
    return Panel(
        title="Loss at what can be known",
        xlabel="update",
        ylabel="nats per target",
        series=series,
        from_zero=True,
        level=("guessing", found.chance_nats),
    )
