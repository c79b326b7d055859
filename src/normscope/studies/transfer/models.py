"""What is trained: one configuration for every placement and size."""

from pathlib import Path

from ...data.documents.opening import TextDataConfig
from ...data.parallel.opening import TOY
from ...errors import UserError
from ...optim import OptimizerConfig, ScheduleConfig
from ...tasks.language_model.config import LanguageModelRunConfig
from ...tasks.registry import config_of
from ...train import TrainConfig
from .config import TransferConfig


def run_config(config: TransferConfig, placement: str, width: int, blocks: int) -> LanguageModelRunConfig:
    """Rate, warm-up and seed are still to be chosen. Raises UserError for text that is not there."""
    if config.text != TOY and not Path(config.text).is_dir():
        raise UserError(
            f"no corpus at {config.text!r}: prepare one with `normscope data documents` (docs/studies.md says how), "
            f"and give its folder with --set text=FOLDER (or text={TOY} for the embedded language)"
        )
    table = {
        "task": "language-model",
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
    made = config_of(table, source="the study")
    assert isinstance(made, LanguageModelRunConfig)
    return LanguageModelRunConfig(
        data=TextDataConfig(
            corpus=config.text, sequence_length=config.sequence_length, batch_sequences=config.batch_sequences
        ),
        model=made.model,
        optimizer=OptimizerConfig(name="adam"),
        # One decay for both, whatever the warm-up.
        schedule=ScheduleConfig(decay="linear", decay_from_updates=config.warmup_updates),
        train=TrainConfig(
            duration=config.updates,
            validate_every=config.updates,
            checkpoint_every=config.updates,
            keep_checkpoints=1,
            device=config.device,
            threads=1,
        ),
    )
