"""What is trained: one configuration for every placement and size."""

from normscope.optim import OptimizerConfig
from normscope.tasks.language_model import LanguageModelRunConfig

from ..engine.models import language_model
from .config import TransferConfig


def run_config(config: TransferConfig, placement: str, width: int, blocks: int) -> LanguageModelRunConfig:
    """Rate, warm-up and seed are still to be chosen. Raises UserError for text that is not there."""
    return language_model(
        config,
        preset=config.preset,
        sizes={
            "placement": placement,
            "width": width,
            "ffn_width": round(config.ffn_ratio * width),
            "heads": width // config.head_width,
            "blocks": blocks,
        },
        optimizer=OptimizerConfig(name="adam"),
    )
