"""The words for what a comparison's losses are means over."""

from collections.abc import Sequence

from ..report.comparison import contents
from ..report.comparison.targets import TOKENS, TargetWords
from ..report.words import counted, learning_rate, number
from ..tasks.protocol import TargetFacts
from ..train.record import RunRecord

_AS_BUILT = ("model as it is built", "the loss of the model before any update")
_BY_FREQUENCY = (
    "guess by label frequencies",
    "what a model reaches that knows nothing but how frequent each label is",
)
"""What reaches a loss without the input, and what that is."""


def words_for(facts: TargetFacts) -> TargetWords:
    """Returns how a page speaks of such targets."""
    if facts.one == "token":
        return TOKENS
    baseline, baseline_is = _BY_FREQUENCY if facts.guessed else _AS_BUILT
    if facts.one == "target":
        return TargetWords(
            one="target",
            short="target",
            unit="mean loss",
            baseline=baseline,
            baseline_is=baseline_is,
        )
    return TargetWords(
        one="example",
        short="example",
        unit="cross-entropy per example" if facts.guessed else "mean loss per example",
        baseline=baseline,
        baseline_is=baseline_is,
        commonest_share=facts.commonest_share,
        classes=facts.classes,
    )


ACCURACY = "accuracy"


def accuracy_in(record: RunRecord) -> float | None:
    """Returns the share of right answers at the last validation; None where none was logged."""
    found = record.metrics.get(ACCURACY)
    return found if found is not None and 0 <= found <= 1 else None


def sensitivity_words(found: contents.RateSensitivity, shared: Sequence[float], unit: str) -> str:
    """Returns a sensitivity in a sentence; unit: of losses."""
    spread = (
        "one seed"
        if found.seeds == 1
        else f"{number(found.low)} to {number(found.high)}, {found.seeds} seeds"
    )
    replaced = ""
    if found.replaced:
        verb = "counts" if found.replaced == 1 else "count"
        replaced = f"; {counted(found.replaced, 'run')} {verb} as the loss at initialisation"
    return (
        f"learning-rate sensitivity {number(found.value)} {unit} ({spread}) over "
        f"{len(shared)} rates from {learning_rate(shared[0])} to {learning_rate(shared[-1])}; best "
        f"at {learning_rate(found.best_lr)}{replaced}"
    )
