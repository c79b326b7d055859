"""What is trained, and what the theory states of it before the first update."""

import math

import numpy as np

from normscope.data.opening import TextDataConfig
from normscope.model import DecoderConfig
from normscope.optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig
from normscope.tasks.language_model import LanguageModelRunConfig
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, predict
from normscope.train import TrainConfig

from ..engine.models import refuse_missing
from .config import ConditioningConfig


def run_config(config: ConditioningConfig, placement: str, lr: float, seed: int) -> LanguageModelRunConfig:
    """Everything of the theory's setting `paper` but for the text. Raises UserError for text that is not there."""
    refuse_missing(config.text, "text", "normscope data documents")
    return LanguageModelRunConfig(
        seed=seed,
        data=TextDataConfig(
            corpus=config.text, sequence_length=config.sequence_length, batch_sequences=config.batch_sequences
        ),
        model=DecoderConfig(
            placement=placement,
            width=config.width,
            ffn_width=config.ffn_width,
            heads=config.heads,
            blocks=config.blocks,
            positions=config.sequence_length,
            position_encoding="sinusoidal",
            embedding_scale="root-width",
            dropout=0.0,
            attention_dropout=0.0,
            activation="relu",
            initialisation="paper",
        ),
        optimizer=OptimizerConfig(name="adam", peak_lr=lr),
        adaptive=AdaptiveConfig(over=config.updates // 2),
        schedule=ScheduleConfig(
            decay="linear", warmup_updates=config.warmup_updates, decay_from_updates=config.warmup_updates
        ),
        train=TrainConfig(
            duration=config.updates, validate_every=config.validate_every, checkpoint_every=config.updates
        ),
    )


def stated_spread(config: ConditioningConfig, placement: str, vocabulary: int) -> float:
    """Largest over smallest gradient norm of a block at initialisation, predicted from the formula alone.

    NaN where a block's is predicted 0, and where the theory does not follow the formula.
    """
    setting = ModelSetting(
        stack="decoder",
        blocks=config.blocks,
        width=config.width,
        ffn_width=config.ffn_width,
        heads=config.heads,
        tokens=config.sequence_length,
        sequences=config.batch_sequences,
        vocabulary=vocabulary,
        setting="paper",
    )
    try:
        norms = predict(placement, setting)["decoder"].gradient_norm.values()
    except Unpredictable:
        return math.nan
    blocks = np.sqrt(np.sum([np.square(norm) for norm in norms], axis=0))
    return float(blocks.max() / blocks.min()) if blocks.min() > 0 else math.nan
