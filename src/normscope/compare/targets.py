"""The words for what a comparison's losses are means over."""

from ..report.comparison.targets import TOKENS, TargetWords
from ..tasks.protocol import TargetFacts

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
