"""The configuration of a translation run."""

from dataclasses import dataclass, field
from typing import Literal

from ...data.parallel.opening import DataConfig
from ...errors import UserError
from ...model import ModelConfig
from ..run_config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationConfig:
    """The loss, and how validation translates."""

    label_smoothing: float = 0.1
    bleu_sentences: int = 0
    """Sentences of the validation split to translate at each validation; 0 for no BLEU while training."""
    bleu_beam: int = 1
    """1 is greedy search, which is enough to follow a run."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}")
        if self.bleu_sentences < 0 or self.bleu_beam < 1:
            raise ValueError("bleu_sentences must be 0 or more and bleu_beam at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRunConfig(RunConfig):
    """Translation of sentences."""

    task: Literal["translation"] = "translation"
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    translation: TranslationConfig = field(default_factory=TranslationConfig)


def translation(config: RunConfig, what: str) -> TranslationRunConfig:
    """The configuration, of the one task that `what` can be done with. Raises UserError for another."""
    if not isinstance(config, TranslationRunConfig):
        raise UserError(f'{what} is for task = "translation", and this configuration has task = "{config.task}"')
    return config
