"""Small models that studies train on a ladder of rates: one decay, one validation, one checkpoint for all.

Two tasks at one size: a decoder that continues text, and an encoder-decoder that translates.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from normscope.data.opening import TOY, DataConfig, TextDataConfig
from normscope.errors import UserError
from normscope.model import DecoderConfig, ModelConfig
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig
from normscope.tasks.protocol import AnyCorpus, TaskFromScratch
from normscope.tasks.registry import with_preset
from normscope.tasks.run_config import RunConfig
from normscope.tasks.translation import TRANSLATION, TranslationRunConfig
from normscope.train import TrainConfig

from .checks import check_choices, check_different, check_rising

LOSS = {"loss": "negative log-likelihood per target token of the whole validation split, natural logarithm"}
"""The condition of every study that reports last losses."""
TASKS = ("language-model", "translation")


def settings_of(config: object, *names: str) -> dict[str, Any]:
    """Settings by their names, for another configuration that has them too."""
    return {name: getattr(config, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderConfig:
    """Trainings without warm-up and with, of which few seeds climb a ladder of rates and more are trained at its best.

    A study's configuration derives from it, with defaults of its own. Raises ValueError where more seeds climb than are
    trained, or a warm-up does not end within the training.
    """

    warmup_updates: int = 50
    """Of the runs with warm-up; as many have none. All go to 0 in a straight line from there on."""
    ladder_seeds: int = 1
    """Seeds that climb the whole ladder."""
    seeds: int = 3
    """Seeds that are trained at the best rate of the ladder."""
    updates: int = 200
    text: str = TOY
    """A folder made by `normscope data documents`, or `toy`."""
    sequence_length: int = 64
    batch_sequences: int = 16
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""

    def __post_init__(self) -> None:
        if not 1 <= self.ladder_seeds <= self.seeds:
            raise ValueError(f"ladder_seeds must lie in [1, seeds={self.seeds}], got {self.ladder_seeds}")
        if not 0 < self.warmup_updates < self.updates:
            raise ValueError(f"warmup_updates must lie between 0 and updates={self.updates}, got {self.warmup_updates}")

    @property
    def warmups(self) -> tuple[int, ...]:
        """In updates."""
        return 0, self.warmup_updates

    @property
    def climbing(self) -> str:
        """How many seeds climb, in words."""
        return "one seed" if self.ladder_seeds == 1 else f"{self.ladder_seeds} seeds"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoTasksConfig(LadderConfig):
    """Small models of both tasks. Every run is trained by Adam, and no part of it drops out."""

    tasks: tuple[str, ...] = TASKS
    peak_lrs: tuple[float, ...] = (7e-4, 1.75e-3, 4.4e-3, 1.1e-2, 2.75e-2)
    """The ladder, in rising order."""
    pairs: str = TOY
    """Of translation: a folder made by `normscope data prepare`, or `toy`."""
    toy_pairs: int = 5000
    width: int = 32
    ffn_width: int = 64
    heads: int = 4
    blocks: int = 6
    """Of the language model."""
    stack_blocks: int = 3
    """Of the encoder and of the decoder that translate."""
    initialisation: str = "paper"
    """One scheme for all, times the placement's own gains."""
    sequence_length: int = 32
    batch_sequences: int = 8
    max_tokens: int = 256
    """Of a batch that is translated."""

    def __post_init__(self) -> None:
        LadderConfig.__post_init__(self)
        check_different(self, "tasks", "peak_lrs")
        check_choices(self, "tasks", TASKS)
        check_rising(self, "peak_lrs")


PAPER_SIZE: Mapping[str, Any] = {
    "ladder_seeds": 3, "updates": 20_000, "warmup_updates": 1_000, "peak_lrs": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    "text": "corpora/wikitext2", "pairs": "corpora/iwslt14_deen", "width": 512, "ffn_width": 2048, "heads": 8,
    "blocks": 24, "stack_blocks": 12, "sequence_length": 512, "batch_sequences": 32, "max_tokens": 4096,
    "device": "auto",
}  # fmt: skip
"""Settings of both tasks at the scale `paper`, in every study that has them."""


def training_conditions(config: TwoTasksConfig) -> dict[str, str]:
    """How runs of both tasks are trained, over which rates and with how many seeds."""
    return {
        "weights": f"drawn by scheme {config.initialisation} for all, times the gains of the placement",
        "training": f"{config.updates:,} updates of Adam, betas 0.9 and 0.98, no weight decay, gradients not clipped; "
        f"full rate up to update {config.warmup_updates}, then in a straight line to 0, and a warm-up of "
        f"{config.warmup_updates} updates or none",
        "rates": f"{', '.join(f'{lr:g}' for lr in config.peak_lrs)}: {config.climbing} for the ladder, then "
        f"{config.seeds} at the best. The seed that chose the rate is among them, for all alike",
        "seeds": f"{config.seeds} of each configuration: weights and order; intervals are of 95 %, Student's t, over "
        "seeds in pairs, each claim by itself: of twenty that are not so, one is expected to look certain",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTask:
    """One task at a study's size."""

    name: str
    task: TaskFromScratch[Any, Any, Any, Any]
    base: RunConfig
    """What all runs share; placement, warm-up, rate and seed are still to be chosen."""
    corpus: AnyCorpus
    model: str
    """decoder-only or encoder-decoder."""

    @property
    def words(self) -> str:
        """The task's name in a sentence."""
        return self.name.replace("-", " ")

    @property
    def unigram_nats(self) -> float:
        """The loss of a model that knows the frequencies of tokens alone."""
        return self.task.chance_nats(self.corpus)


def trials(config: TwoTasksConfig) -> list[StudyTask]:
    """The configuration's tasks, opened. Raises UserError for text that is not there."""
    return [trial(config, name) for name in config.tasks]


def trial(config: TwoTasksConfig, name: str) -> StudyTask:
    """One of `TASKS`. Raises UserError for text that is not there."""
    task, base_of, model = _TRIALS[name]
    base = base_of(config)
    return StudyTask(name=name, task=task, base=base, corpus=task.open(base), model=model)


def language_model(
    config: LadderConfig, *, preset: str, sizes: Mapping[str, Any], optimizer: OptimizerConfig
) -> LanguageModelRunConfig:
    """A run of a preset's decoder; rate, warm-up and seed are still to be chosen.

    sizes: of `[model]`, a placement among them if it is not the preset's. Raises UserError for text that is not there.
    """
    table = {
        "task": LANGUAGE_MODEL.name,
        "data": asdict(_text(config)),
        "model": {"preset": preset, "positions": config.sequence_length, **sizes},
    }
    made = LANGUAGE_MODEL.config_of(with_preset(table, source="the study"), source="the study")
    return replace(made, optimizer=optimizer, **_training(config))


def language_model_base(config: TwoTasksConfig) -> LanguageModelRunConfig:
    """A run of the decoder; placement, warm-up, rate and seed are still to be chosen. Raises UserError without text."""
    model = DecoderConfig(
        **_size(config), blocks=config.blocks, positions=config.sequence_length, initialisation=config.initialisation
    )
    return LanguageModelRunConfig(
        data=_text(config), model=model, optimizer=OptimizerConfig(name="adam"), **_training(config)
    )


def translation_base(config: TwoTasksConfig) -> TranslationRunConfig:
    """A run of the encoder-decoder, in the same way. Raises UserError where there are no pairs."""
    refuse_missing(config.pairs, "pairs", "normscope data prepare")
    return TranslationRunConfig(
        data=DataConfig(corpus=config.pairs, toy_pairs=config.toy_pairs, max_tokens=config.max_tokens),
        model=ModelConfig(
            **_size(config),
            encoder_blocks=config.stack_blocks,
            decoder_blocks=config.stack_blocks,
            initialisation=config.initialisation,
        ),
        optimizer=OptimizerConfig(name="adam"),
        **_training(config),
    )


def refuse_missing(corpus: str, setting: str, command: str) -> None:
    """Raise UserError where there is no such folder, saying which command makes one and which setting names it."""
    if corpus != TOY and not Path(corpus).is_dir():
        raise UserError(
            f"no corpus at {corpus!r}: prepare one with `{command}` (docs/studies.md says which), and give its folder "
            f"with --set {setting}=FOLDER (or {setting}={TOY} for the embedded language)"
        )


def _text(config: LadderConfig) -> TextDataConfig:
    refuse_missing(config.text, "text", "normscope data documents")
    return TextDataConfig(
        corpus=config.text, sequence_length=config.sequence_length, batch_sequences=config.batch_sequences
    )


def _size(config: TwoTasksConfig) -> dict[str, Any]:
    # The text is gone through less than once: nothing can be learned by heart.
    return {**settings_of(config, "width", "ffn_width", "heads"), "dropout": 0.0, "attention_dropout": 0.0}


def _training(config: LadderConfig) -> dict[str, Any]:
    return {
        # One decay for both, whatever the warm-up: a straight line to 0 from the end of the warm-up.
        "schedule": ScheduleConfig(decay="linear", decay_from_updates=config.warmup_updates),
        "train": TrainConfig(
            duration=config.updates,
            validate_every=config.updates,
            checkpoint_every=config.updates,
            keep_checkpoints=1,
            device=config.device,
            threads=1,
            # Batches so small cost little, and many runs may share a machine.
            input_workers=0,
        ),
    }


_TRIALS: Mapping[str, tuple[TaskFromScratch[Any, Any, Any, Any], Callable[[TwoTasksConfig], RunConfig], str]] = {
    "language-model": (LANGUAGE_MODEL, language_model_base, "decoder-only"),
    "translation": (TRANSLATION, translation_base, "encoder-decoder"),
}
