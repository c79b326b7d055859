"""The words for what a comparison's losses are means over."""

from ..report.comparison.targets import TOKENS, TargetWords
from ..tasks.protocol import TargetFacts

_AS_BUILT = {
    "baseline": "model as it is built",
    "baseline_is": "the loss of the model before any update",
}
_BY_FREQUENCY = {
    "baseline": "guess by label frequencies",
    "baseline_is": "what a model reaches that knows nothing but how frequent each label is",
}


def words_for(facts: TargetFacts) -> TargetWords:
    """Returns how a page speaks of such targets."""
    if facts.one == "token":
        return TOKENS
    if facts.one == "target":
        return TargetWords(one="target", short="target", unit="mean loss", **_AS_BUILT)
    baseline = _BY_FREQUENCY if facts.guessed else _AS_BUILT
    unit = "cross-entropy per example" if facts.guessed else "mean loss per example"
    return TargetWords(
        one="example",
        short="example",
        unit=unit,
        commonest_share=facts.commonest_share,
        classes=facts.classes,
        **baseline,
    )
