"""What is trained: one configuration for every placement and size."""

from ...data.documents.opening import TextDataConfig
from ...optim import OptimizerConfig
from ...tasks.language_model import LANGUAGE_MODEL
from ...tasks.language_model.config import LanguageModelRunConfig
from ...tasks.presets import with_preset
from ..ladders.setting import refuse_missing, short_training
from .config import TransferConfig


def run_config(config: TransferConfig, placement: str, width: int, blocks: int) -> LanguageModelRunConfig:
    """Rate, warm-up and seed are still to be chosen. Raises UserError for text that is not there."""
    refuse_missing(config.text, "text", "normscope data documents")
    table = {
        "task": LANGUAGE_MODEL.name,
        "model": {
            "preset": config.preset,
            "placement": placement,
            "width": width,
            "ffn_width": round(config.ffn_ratio * width),
            "heads": width // config.head_width,
            "blocks": blocks,
            "positions": config.sequence_length,
        },
    }
    made = LANGUAGE_MODEL.config_of(with_preset(table, source="the study"), source="the study")
    return LanguageModelRunConfig(
        data=TextDataConfig(
            corpus=config.text, sequence_length=config.sequence_length, batch_sequences=config.batch_sequences
        ),
        model=made.model,
        optimizer=OptimizerConfig(name="adam"),
        # One decay for both, whatever the warm-up.
        **short_training(updates=config.updates, warmup_updates=config.warmup_updates, device=config.device),
    )
