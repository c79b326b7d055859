"""The configuration of fine-tuning on labelled sentence pairs."""

from dataclasses import dataclass, field
from typing import Literal

from ...data.labelled.corpus import PairDataConfig
from ...model import EncoderConfig
from ..run_config import RunConfig, refuse_too_long


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationConfig:
    """Beside what the encoder has."""

    dropout: float = 0.1
    """On the pooled vector, as BERT's run_classifier.py."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConfig:
    """The pre-trained weights that a fine-tuning starts from."""

    run: str
    """Folder of a masked-lm run."""
    update: int
    """Its checkpoint."""
    weights_sha256: str = ""
    """Of that checkpoint's `model.safetensors`; empty for whatever is there. With it, a pre-training made anew in the
    same folder is not taken for this one."""

    def __post_init__(self) -> None:
        if self.update < 0:
            raise ValueError(f"update must be 0 or more, got {self.update}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRunConfig(RunConfig):
    """Fine-tuning on labelled sentence pairs."""

    task: Literal["pair-classification"] = "pair-classification"
    data: PairDataConfig
    start: StartConfig
    model: EncoderConfig = field(default_factory=EncoderConfig)
    """As the run it starts from has it, but for its dropout."""
    classification: ClassificationConfig = field(default_factory=ClassificationConfig)

    def __post_init__(self) -> None:
        # Slots make a new class, of which a bare `super()` does not know.
        RunConfig.__post_init__(self)
        refuse_too_long(self.data.sequence_length, self.model)
