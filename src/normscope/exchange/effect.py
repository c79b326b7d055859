"""How far two models with one vocabulary are apart, on a few sentences: hidden states and unsmoothed loss."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from ..runs.loading import AnyRun
from ..tasks.registry import task_from_scratch
from .forms import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What becomes of the outputs when one model takes another's place."""

    text: str
    hidden_change: float
    """‖new - old‖ / ‖old‖ of all hidden states that leave the (last) stack."""
    nll_before: float
    """Mean negative log-likelihood of the target tokens, in nats."""
    nll_after: float
    nll_uniform: float
    """Of uniform guessing among all tokens."""

    def line(self) -> str:
        """For the user."""
        return (
            f"measured on {self.text}: hidden states change by {self.hidden_change:.3g} of their length, the loss goes "
            f"from {self.nll_before:.3f} to {self.nll_after:.3f} nats per token (uniform guessing: "
            f"{self.nll_uniform:.3f})"
        )


def effect(run: AnyRun, old: Model, new: Model) -> Effect:
    """On validation text of the run where its corpus can be reached and is still that of its vocabulary; otherwise on
    random tokens, which show how hidden states change and nothing of the loss."""
    text, outputs = task_from_scratch(run.config, "nothing to compare on").sentences(run)
    with torch.inference_mode():
        old_hidden, old_logits, targets = outputs(old.eval())
        new_hidden, new_logits, _ = outputs(new.eval())
    return Effect(
        text=text,
        hidden_change=float((new_hidden - old_hidden).norm() / old_hidden.norm()),
        nll_before=float(functional.cross_entropy(old_logits.float(), targets)),
        nll_after=float(functional.cross_entropy(new_logits.float(), targets)),
        nll_uniform=float(torch.tensor(old_logits.shape[1]).log()),
    )
