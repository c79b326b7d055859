"""Small models that studies train: a decoder that continues text, and an encoder-decoder that translates."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from normscope.data.documents.opening import TextDataConfig
from normscope.data.parallel.opening import TOY, DataConfig
from normscope.errors import UserError
from normscope.model import DecoderConfig, ModelConfig
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig
from normscope.tasks.registry import with_preset
from normscope.tasks.translation import TranslationRunConfig
from normscope.train import TrainConfig


def short_training(*, updates: int, warmup_updates: int, device: str) -> dict[str, Any]:
    """Sections of a run's configuration: a straight line to 0 from the end of the warm-up, also where there is none.

    warmup_updates: of the runs with warm-up; the schedule itself has none yet.
    """
    return {
        "schedule": ScheduleConfig(decay="linear", decay_from_updates=warmup_updates),
        "train": TrainConfig(
            duration=updates,
            validate_every=updates,
            checkpoint_every=updates,
            keep_checkpoints=1,
            device=device,
            threads=1,
        ),
    }


def language_model(
    *,
    preset: str,
    sizes: Mapping[str, Any],
    text: str,
    sequence_length: int,
    batch_sequences: int,
    optimizer: OptimizerConfig,
    **training: Any,
) -> LanguageModelRunConfig:
    """A run of a preset's decoder; rate, warm-up and seed are still to be chosen.

    sizes: of `[model]`, a placement among them if it is not the preset's. text: a prepared corpus or `toy`. training:
    as `short_training` takes it. Raises UserError for text that is not there.
    """
    refuse_missing(text, "text", "normscope data documents")
    table = {"task": LANGUAGE_MODEL.name, "model": {"preset": preset, "positions": sequence_length, **sizes}}
    made = LANGUAGE_MODEL.config_of(with_preset(table, source="the study"), source="the study")
    return replace(
        made,
        data=TextDataConfig(corpus=text, sequence_length=sequence_length, batch_sequences=batch_sequences),
        optimizer=optimizer,
        # One decay for both, whatever the warm-up.
        **short_training(**training),
    )


def refuse_missing(corpus: str, setting: str, command: str) -> None:
    """Raise UserError where there is no such folder, saying which command makes one and which setting names it."""
    if corpus != TOY and not Path(corpus).is_dir():
        raise UserError(
            f"no corpus at {corpus!r}: prepare one with `{command}` (docs/studies.md says which), and give its folder "
            f"with --set {setting}=FOLDER (or {setting}={TOY} for the embedded language)"
        )


class TrialSetting(Protocol):
    """What a study's configuration says of both tasks. Every run is trained by Adam, and no part of it drops out."""

    @property
    def text(self) -> str:
        """Of the language model: a folder made by `normscope data documents`, or `toy`."""

    @property
    def pairs(self) -> str:
        """Of translation: a folder made by `normscope data prepare`, or `toy`."""

    @property
    def toy_pairs(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def ffn_width(self) -> int: ...

    @property
    def heads(self) -> int: ...

    @property
    def blocks(self) -> int:
        """Of the language model."""

    @property
    def stack_blocks(self) -> int:
        """Of the encoder and of the decoder that translate."""

    @property
    def initialisation(self) -> str: ...

    @property
    def sequence_length(self) -> int: ...

    @property
    def batch_sequences(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """Of a batch that is translated."""

    @property
    def updates(self) -> int: ...

    @property
    def warmup_updates(self) -> int:
        """Of the runs with warm-up: all have the full rate up to there, and then a straight line to 0."""

    @property
    def device(self) -> str: ...


def language_model_base(setting: TrialSetting) -> LanguageModelRunConfig:
    """A run of the decoder; placement, warm-up, rate and seed are still to be chosen. Raises UserError without text."""
    refuse_missing(setting.text, "text", "normscope data documents")
    return LanguageModelRunConfig(
        data=TextDataConfig(
            corpus=setting.text, sequence_length=setting.sequence_length, batch_sequences=setting.batch_sequences
        ),
        model=DecoderConfig(
            **_size(setting),
            blocks=setting.blocks,
            positions=setting.sequence_length,
            initialisation=setting.initialisation,
        ),
        **_training(setting),
    )


def translation_base(setting: TrialSetting) -> TranslationRunConfig:
    """A run of the encoder-decoder, in the same way. Raises UserError where there are no pairs."""
    refuse_missing(setting.pairs, "pairs", "normscope data prepare")
    return TranslationRunConfig(
        data=DataConfig(corpus=setting.pairs, toy_pairs=setting.toy_pairs, max_tokens=setting.max_tokens),
        model=ModelConfig(
            **_size(setting),
            encoder_blocks=setting.stack_blocks,
            decoder_blocks=setting.stack_blocks,
            initialisation=setting.initialisation,
        ),
        **_training(setting),
    )


def _size(setting: TrialSetting) -> dict[str, Any]:
    # The text is gone through less than once: nothing can be learned by heart.
    return {
        "width": setting.width,
        "ffn_width": setting.ffn_width,
        "heads": setting.heads,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }


def _training(setting: TrialSetting) -> Mapping[str, Any]:
    return {
        "optimizer": OptimizerConfig(name="adam"),
        # One decay for both, whatever the warm-up.
        **short_training(updates=setting.updates, warmup_updates=setting.warmup_updates, device=setting.device),
    }
