"""The measurements of a model before its training: how far its first update moves its logits."""

import math

import torch

from normscope.data.opening import open_corpus
from normscope.measure import Point
from normscope.model import profile
from normscope.placement import named
from normscope.tasks.translation import TRANSLATION, TranslationRunConfig
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, Update, predict
from normscope.theory.settings import InitialState

from ..amplification.measure import SMALL_RATES, changes_at, step_of

STACKS = 2
"""An encoder-decoder of N + N blocks is predicted as an encoder of so many times N."""


def measured_change(config: TranslationRunConfig) -> float:
    """E(f(x, θ*) - f(x, θ))² of the logits, by the first update of all weights at a rate of 1.

    To first order, in float64 and without dropout: of the weights and the first batch of a run,
    on that batch. Raises UserError for text that is not there.
    """
    corpus = open_corpus(config.data)
    model = TRANSLATION.build(config, corpus.codec)
    batch = TRANSLATION.batches(config, corpus)(0)
    profile(model, lambda: batch.run(model))
    model.double()
    logits = _Logits(model, batch.run)
    update = config.optimizer.name
    step = step_of(logits, update, lambda _: batch.loss(logits()))
    change = changes_at(logits, logits, step, {"logits": Point(logits)})["logits"]
    return change / SMALL_RATES[update] ** 2


class _Logits(torch.nn.Module):
    """A model on one batch, whose output is its logits."""

    def __init__(self, model: torch.nn.Module, run: object) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self) -> torch.Tensor:
        found: torch.Tensor = self.run(self.model)  # type: ignore[operator]
        return found


def predicted_change(config: TranslationRunConfig, *, tokens: int, vocabulary: int) -> float | None:
    """The same from the placement's formula, without a model; None where theory does not follow.

    Of one sequence of tokens that all differ, at random targets. Theory follows an update through
    one stack, and not through both: an encoder of as many blocks as both stacks have.
    """
    model = config.model
    setting = ModelSetting(
        blocks=STACKS * model.encoder_blocks,
        width=model.width,
        ffn_width=model.ffn_width,
        heads=model.heads,
        tokens=tokens,
        vocabulary=vocabulary,
        setting=model.initialisation,
    )
    asked = Update(optimizer=config.optimizer.name, rate=1.0)
    try:
        change = predict(model.placement, setting, update=asked)["encoder"].change
    except Unpredictable:
        return None
    placement = named(model.placement)(setting.shape("encoder"))
    row = InitialState(model.initialisation, placement).row
    assert change is not None
    assert row is not None
    found = change.output * row
    return found if 0 < found < math.inf else None
