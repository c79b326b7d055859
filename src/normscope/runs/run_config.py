"""What a run depends on, beside the machine it runs on: one class for each task."""

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ConfigDict

from ..data.documents.opening import TextDataConfig
from ..data.labelled.corpus import PairDataConfig
from ..data.parallel.opening import DataConfig
from ..model import DecoderConfig, EncoderConfig, ModelConfig
from ..optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig
from ..tasks import ClassificationConfig, LanguageModelConfig, MaskedConfig, TranslationConfig
from ..train import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonConfig:
    """What every task has."""

    seed: int = 1
    """Of the initial weights, the order of the batches, the masks and the dropout."""
    imports: tuple[str, ...] = ()
    """Python files that register placements of your own."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    adaptive: AdaptiveConfig = field(default_factory=AdaptiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(CommonConfig):
    """Translation."""

    task: Literal["translation"] = "translation"
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    translation: TranslationConfig = field(default_factory=TranslationConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRunConfig(CommonConfig):
    """BERT's pre-training."""

    task: Literal["masked-lm"] = "masked-lm"
    data: TextDataConfig = field(default_factory=TextDataConfig)
    model: EncoderConfig = field(default_factory=EncoderConfig)
    masked_lm: MaskedConfig = field(default_factory=MaskedConfig)

    def __post_init__(self) -> None:
        # Slots make a new class, of which a bare `super()` does not know.
        CommonConfig.__post_init__(self)
        _check_positions(self.data, self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModelRunConfig(CommonConfig):
    """Decoder-only language modelling."""

    task: Literal["language-model"] = "language-model"
    data: TextDataConfig = field(default_factory=TextDataConfig)
    model: DecoderConfig = field(default_factory=DecoderConfig)
    language_model: LanguageModelConfig = field(default_factory=LanguageModelConfig)

    def __post_init__(self) -> None:
        CommonConfig.__post_init__(self)
        _check_positions(self.data, self.model)


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
class PairRunConfig(CommonConfig):
    """Fine-tuning on labelled sentence pairs."""

    task: Literal["pair-classification"] = "pair-classification"
    data: PairDataConfig
    start: StartConfig
    model: EncoderConfig = field(default_factory=EncoderConfig)
    """As the run it starts from has it, but for its dropout."""
    classification: ClassificationConfig = field(default_factory=ClassificationConfig)

    def __post_init__(self) -> None:
        CommonConfig.__post_init__(self)
        _check_positions(self.data, self.model)


AnyRunConfig = RunConfig | MaskedRunConfig | LanguageModelRunConfig | PairRunConfig

RUN_CONFIGS: dict[str, type[AnyRunConfig]] = {
    "translation": RunConfig,
    "masked-lm": MaskedRunConfig,
    "language-model": LanguageModelRunConfig,
    "pair-classification": PairRunConfig,
}

_SECTIONS: tuple[type[Any], ...] = (
    *RUN_CONFIGS.values(),
    DataConfig,
    TextDataConfig,
    PairDataConfig,
    StartConfig,
    ModelConfig,
    EncoderConfig,
    DecoderConfig,
    OptimizerConfig,
    ScheduleConfig,
    AdaptiveConfig,
    TrainConfig,
    TranslationConfig,
    MaskedConfig,
    LanguageModelConfig,
    ClassificationConfig,
)
for _class in _SECTIONS:
    _class.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)


def _check_positions(data: TextDataConfig | PairDataConfig, model: EncoderConfig | DecoderConfig) -> None:
    if data.sequence_length > model.positions:
        raise ValueError(
            f"data.sequence_length={data.sequence_length} is above model.positions={model.positions}: the model has no "
            "embedding for later positions; make the sequences shorter or the positions more"
        )
