"""The configuration of decoder-only language modelling."""

from dataclasses import dataclass, field
from typing import Literal

from ...data.documents.opening import TextDataConfig
from ...model import DecoderConfig
from ..run_config import TextRunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModelConfig:
    """The loss."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModelRunConfig(TextRunConfig):
    """Decoder-only language modelling."""

    task: Literal["language-model"] = "language-model"
    data: TextDataConfig = field(default_factory=TextDataConfig)
    model: DecoderConfig = field(default_factory=DecoderConfig)
    language_model: LanguageModelConfig = field(default_factory=LanguageModelConfig)
