"""Runs of two tasks at one size: a small decoder that continues text, and a small encoder-decoder that translates."""

from collections.abc import Mapping
from typing import Any, Protocol

from normscope.data.documents.opening import TextDataConfig
from normscope.data.parallel.opening import DataConfig
from normscope.model import DecoderConfig, ModelConfig
from normscope.optim import OptimizerConfig
from normscope.tasks.language_model import LanguageModelRunConfig
from normscope.tasks.translation import TranslationRunConfig

from .setting import refuse_missing, short_training


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
