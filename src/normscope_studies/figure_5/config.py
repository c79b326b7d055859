"""The sizes at which Xiong et al. 2020, figure 5, is asked: the pre-trainings, the checkpoints that
are fine-tuned, the scales.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from normscope.data.opening import TOY, TextDataConfig
from normscope.errors import UserError
from normscope.finetune.cells import SearchSpace
from normscope.model import EncoderConfig
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.tasks.masked_lm import MaskedConfig, MaskedRunConfig
from normscope.train import TrainConfig

from ..engine.checks import check_least, check_positive, refuse_missing, settings_of
from ..engine.study import scales

POST, PRE = "post-ln", "pre-ln"
PLACEMENTS = {POST: "Post-LN", PRE: "Pre-LN"}
GLUE_FILES = ("train.tsv", "dev.tsv")


class PretrainingArm(NamedTuple):
    """The settings that differ between the pre-trainings."""

    placement: str
    warmup_updates: int
    peak_lr: float

    @property
    def title(self) -> str:
        warmup = f"warm-up {self.warmup_updates:,}" if self.warmup_updates else "no warm-up"
        return f"{PLACEMENTS[self.placement]}, {warmup}, rate {self.peak_lr:g}"


class ArmPair(NamedTuple):
    """A pair of pre-trainings that are compared, and under what."""

    name: str
    post: PretrainingArm
    pre: PretrainingArm


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure5Config:
    """Post-LN with warm-up and Pre-LN without, each at its own rate, as the paper has them, and at
    the other's.
    """

    corpus: str = "corpora/wikipedia_en"
    """A folder made by `normscope data documents`, or `toy`."""
    seeds: int = 3
    """Pre-trainings of each arm: of the weights, the pairs, the masks and the order."""
    width: int = 128
    ffn_width: int = 512
    heads: int = 4
    blocks: int = 6
    dropout: float = 0.0
    """0 where the text is gone through less than once: nothing can be learned by heart."""
    sequence_length: int = 128
    """Tokens, and positions of the model."""
    batch_sequences: int = 16
    accumulation: int = 1
    updates: int = 12_000
    warmup_updates: int = 600
    """The warm-up of Post-LN; Pre-LN has none."""
    post_lr: float = 1e-3
    """The rate that Post-LN is given in the paper's comparison."""
    pre_lr: float = 3e-3
    """The rate of Pre-LN: three times as much, as in the paper. `normscope choose` names 2.6e-3 for
    Pre-LN encoders of 6 blocks of width 128.
    """
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    epsilon: float = 1e-6
    clip_norm: float = 1.0
    """The norm that an update's gradient is clipped to; as the three before as Devlin et al. 2018
    have them.
    """
    checkpoints: int = 6
    """The number of checkpoints of a run at equal distances, all of which are kept, with those of
    the best validations.
    """
    validations: int = 4
    """The validations between one checkpoint and the next."""
    valid_sequences: int = 600
    tuned: tuple[int, ...] = (3, 6)
    """The checkpoints that are fine-tuned, by their numbers from 1, in rising order."""
    tasks: tuple[str, ...] = ("mrpc", "rte")
    """`toy` is a task of drawn pairs of the toy language."""
    glue: str = "glue"
    """A folder with a folder for each task, which has train.tsv and dev.tsv."""
    tune_seeds: int = 6
    tune_batch_sizes: tuple[int, ...] = (16,)
    tune_rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3)
    tune_epochs: tuple[int, ...] = (3,)
    tune_dropout: float = 0.1
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""

    def __post_init__(self) -> None:
        check_least(self, seeds=1, tune_seeds=2, checkpoints=1, validations=1)
        check_positive(self, "post_lr", "pre_lr")
        if self.updates % (self.checkpoints * self.validations):
            raise ValueError(
                f"updates={self.updates} must be a multiple of checkpoints={self.checkpoints} "
                f"times validations={self.validations}, so that all are at equal distances"
            )
        if not 0 < self.warmup_updates < self.updates:
            raise ValueError(
                f"warmup_updates must lie between 0 and updates={self.updates}, got "
                f"{self.warmup_updates}"
            )
        if not self.post_lr < self.pre_lr:
            raise ValueError(
                f"post_lr={self.post_lr} must be below pre_lr={self.pre_lr}: the paper's claim is "
                "of that"
            )
        rising = bool(self.tuned) and list(self.tuned) == sorted(set(self.tuned))
        if not rising or not 1 <= self.tuned[0] <= self.tuned[-1] <= self.checkpoints:
            raise ValueError(
                f"tuned must be numbers of checkpoints in rising order, from 1 to "
                f"{self.checkpoints}, got {self.tuned}"
            )
        self.space()
        self.training()

    @property
    def arms(self) -> tuple[PretrainingArm, ...]:
        """The paper's two, then each at the other's rate."""
        return (
            PretrainingArm(POST, self.warmup_updates, self.post_lr),
            PretrainingArm(PRE, 0, self.pre_lr),
            PretrainingArm(POST, self.warmup_updates, self.pre_lr),
            PretrainingArm(PRE, 0, self.post_lr),
        )

    @property
    def pairs(self) -> tuple[ArmPair, ...]:
        """The pairs as the paper compares them, and at the same rates, as it does not."""
        own_post, own_pre, post, pre = self.arms
        rates = f"{own_post.peak_lr:g} and {own_pre.peak_lr:g}"
        return (
            ArmPair(f"each at its own rate ({rates})", own_post, own_pre),
            ArmPair(f"both at {pre.peak_lr:g}", own_post, pre),
            ArmPair(f"both at {post.peak_lr:g}", post, own_pre),
        )

    @property
    def checkpoint_every(self) -> int:
        return self.updates // self.checkpoints

    @property
    def tuned_updates(self) -> tuple[int, ...]:
        """The checkpoints that are fine-tuned: each has been validated."""
        return tuple(number * self.checkpoint_every for number in self.tuned)

    @property
    def tokens_per_update(self) -> int:
        """The tokens of an update, at most."""
        return self.sequence_length * self.batch_sequences * self.accumulation

    def space(self) -> SearchSpace:
        """Returns the settings that are searched over for each arm and task."""
        return SearchSpace(
            batch_sizes=self.tune_batch_sizes, rates=self.tune_rates, epochs=self.tune_epochs
        )

    def training(self) -> MaskedRunConfig:
        """Returns the settings that all arms share; placement, warm-up, rate and seed are still to
        be chosen.
        """
        return MaskedRunConfig(
            data=TextDataConfig(
                **settings_of(self, "corpus", "sequence_length", "batch_sequences")
            ),
            model=EncoderConfig(
                **settings_of(self, "width", "ffn_width", "heads", "blocks", "dropout"),
                positions=self.sequence_length,
                attention_dropout=self.dropout,
            ),
            optimizer=OptimizerConfig(
                name="adamw", **settings_of(self, "betas", "weight_decay", "epsilon")
            ),
            schedule=ScheduleConfig(decay="linear"),
            train=TrainConfig(
                duration=self.updates,
                validate_every=self.checkpoint_every // self.validations,
                checkpoint_every=self.checkpoint_every,
                # Every validation that is the best so far is a checkpoint too, and the last ones
                # are kept: all of them, so that those to be fine-tuned are among them.
                keep_checkpoints=self.checkpoints * self.validations + 1,
                threads=1,
                input_workers=0 if self.device == "cpu" else "auto",
                **settings_of(self, "accumulation", "clip_norm", "device"),
            ),
            masked_lm=MaskedConfig(valid_sequences=self.valid_sequences),
        )


def check_inputs(config: Figure5Config) -> None:
    """Checks that the files are there. Raises UserError that says how to come by what is not."""
    refuse_missing(config.corpus, "corpus", "normscope data documents")
    for task in config.tasks:
        files = [Path(config.glue) / task / name for name in GLUE_FILES]
        for file in files:
            if task != TOY and not file.is_file():
                raise UserError(
                    f"no {file}: give the folder of GLUE's files with --set glue=FOLDER, or leave "
                    "the fine-tuning out with --set 'tasks=[]'"
                )


_SMOKE: dict[str, Any] = {
    "corpus": TOY,
    "tasks": (TOY,),
    "seeds": 1,
    "width": 16,
    "ffn_width": 32,
    "heads": 2,
    "blocks": 2,
    "sequence_length": 40,
    "batch_sequences": 8,
    "updates": 24,
    "warmup_updates": 3,
    "checkpoints": 2,
    "validations": 3,
    "valid_sequences": 20,
    "tuned": (1, 2),
    "tune_seeds": 2,
    "tune_rates": (1e-3, 5e-3),
    "tune_epochs": (1,),
}
_GPU: dict[str, Any] = {
    "width": 512,
    "ffn_width": 2048,
    "heads": 8,
    "blocks": 8,
    "batch_sequences": 64,
    "updates": 3000,
    "warmup_updates": 150,
    "post_lr": 5e-4,
    "pre_lr": 1.5e-3,
    "tune_rates": (3e-5, 1e-4, 3e-4),
    "device": "cuda",
}
"""One seed of each arm in some minutes of one H200, by its arithmetic: 2.5e7 tokens a run."""
_PAPER: dict[str, Any] = {
    "seeds": 1,
    "width": 768,
    "ffn_width": 3072,
    "heads": 12,
    "blocks": 12,
    "dropout": 0.1,
    "sequence_length": 512,
    "batch_sequences": 32,
    "accumulation": 8,
    "updates": 1_000_000,
    "warmup_updates": 10_000,
    "post_lr": 1e-4,
    "pre_lr": 3e-4,
    "checkpoints": 20,
    "validations": 5,
    "valid_sequences": 10_000,
    "tuned": (2, 4, 6, 8, 10, 12, 14, 16, 18, 20),
    "tune_batch_sizes": (16, 32),
    "tune_rates": (1e-5, 2e-5, 3e-5, 5e-5, 1e-4),
    "tune_epochs": (3, 4, 5, 6, 7, 8),
    "device": "auto",
}
"""Sections 4.1, A.2 and A.3, and what they take from Devlin et al. 2018."""

SCALES = scales(Figure5Config, smoke=_SMOKE, paper=_PAPER, more={"gpu": _GPU})
"""Cost: smoke takes a minute or two; cpu some 19 core-hours, of which 14 are the pre-trainings;
paper four pre-trainings of BERT-base over 1.3e11 tokens each. `--dry-run` counts what is left.
"""
