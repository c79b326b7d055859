"""How a comparison speaks of what its losses are means over: tokens, or a classification's
examples.
"""

import math
from dataclasses import dataclass

from ..words import number, percentage, significant


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetWords:
    """The words for one target, for the loss, and for what reaches a loss without the input."""

    one: str = "target token"
    short: str = "token"
    unit: str = "nats per target token"
    """Of losses, in captions and at axes."""
    baseline: str = "unigram baseline"
    baseline_is: str = "what a model reaches that knows nothing but how frequent each token is"
    commonest_share: float | None = None
    """Of a classification: how many of the examples have the commonest label."""
    classes: int = 0

    @property
    def is_classification(self) -> bool:
        """Whether a share of right answers says more than a loss."""
        return self.commonest_share is not None

    @property
    def guesses(self) -> str:
        """What is right without looking: "always the commonest label 62.0 %, chance 50.0 %"."""
        assert self.commonest_share is not None
        return (
            f"always the commonest label {percentage(self.commonest_share, 1)}, chance "
            f"{percentage(1 / self.classes, 1)}"
        )

    @property
    def short_unit(self) -> str:
        """Of a difference of losses, in a sentence."""
        return f"nats per {self.short}" if self.short == "token" else f"of loss per {self.short}"

    def loss(self, nats: float) -> str:
        """A loss in words: "4.26 nats per token, perplexity 70.8"."""
        if self.short == "token":
            return f"{number(nats, 2)} nats per token, perplexity {perplexity(nats)}"
        return f"{number(nats, 2)} per {self.short}"

    def short_loss(self, nats: float) -> str:
        """In brackets behind a name."""
        return f"{number(nats, 2)} nats" if self.short == "token" else f"loss {number(nats, 2)}"


TOKENS = TargetWords()


def perplexity(loss_nats: float) -> str:
    """e to the loss, in three digits; a loss beyond all floats has one as well."""
    return significant(math.exp(loss_nats), 3) if loss_nats < 700 else "over 1e304"


def loss_words(words: TargetWords) -> dict[str, str]:
    """Returns how captions speak of losses."""
    if words.short == "token":
        return {
            "loss_is": "Cross-entropy",
            "in_unit": f" in {words.unit}",
            "losses_are": f"Losses are in {words.unit}.",
        }
    loss_is = f"{words.unit[0].upper()}{words.unit[1:]}"
    return {"loss_is": loss_is, "in_unit": "", "losses_are": f"Losses are {words.unit}."}
