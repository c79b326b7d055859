"""How large Xiong et al. 2020, figure 5, is asked: the pre-trainings, the checkpoints fine-tuned, the scales."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from normscope.data.opening import TOY, TextDataConfig
from normscope.errors import UserError
from normscope.model import EncoderConfig
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.tasks.masked_lm import MaskedConfig, MaskedRunConfig
from normscope.train import TrainConfig

from ..engine.checks import check_least
from ..engine.models import refuse_missing, settings_of
from ..engine.study import scales
from ..translation.config import PLACEMENTS, POST, PRE


class PretrainingArm(NamedTuple):
    """What differs between the pre-trainings."""

    placement: str
    warmup_updates: int
    peak_lr: float

    @property
    def title(self) -> str:
        warmup = f"warm-up {self.warmup_updates:,}" if self.warmup_updates else "no warm-up"
        return f"{PLACEMENTS[self.placement]}, {warmup}, rate {self.peak_lr:g}"


class ArmPair(NamedTuple):
    """Two pre-trainings that are compared, and under what."""

    name: str
    post: PretrainingArm
    pre: PretrainingArm


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure5Config:
    """Post-LN with warm-up and Pre-LN without, each at its own rate, as the paper has them, and at the other's."""

    corpus: str = "corpora/wikipedia_en"
    """A folder made by `normscope data documents`, or `toy`."""
    seeds: int = 2
    """Pre-trainings of each arm; of the weights, the pairs, the masks and the order."""
    width: int = 128
    ffn_width: int = 256
    heads: int = 4
    blocks: int = 6
    positions: int = 96
    dropout: float = 0.0
    """0 where the text is gone through less than once: nothing can be learned by heart."""
    sequence_length: int = 64
    batch_sequences: int = 16
    accumulation: int = 1
    updates: int = 3000
    warmup_updates: int = 300
    """Of Post-LN; Pre-LN has none."""
    post_lr: float = 5e-4
    """The rate that Post-LN is given in the paper's comparison."""
    pre_lr: float = 1.5e-3
    """That of Pre-LN: three times as much, as in the paper."""
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    """Of an update's gradient, as the two before as Devlin et al. 2018 have them."""
    validations: int = 15
    """Over a run, at equal distances."""
    valid_sequences: int = 600
    tasks: tuple[str, ...] = ("mrpc", "rte")
    glue: str = "glue"
    """A folder with a folder for each task, which has train.tsv and dev.tsv; not read without tasks."""
    checkpoints: tuple[float, ...] = (0.2, 1.0)
    """Parts of a run after which it is fine-tuned, in rising order."""
    tune_seeds: int = 6
    tune_batch_sizes: tuple[int, ...] = (16, 32)
    tune_rates: tuple[float, ...] = (5e-5, 1e-4)
    tune_epochs: tuple[int, ...] = (3,)
    tune_sequence_length: int = 64
    """Later positions than the pre-training had would be untrained."""
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""

    def __post_init__(self) -> None:
        check_least(self, seeds=1, tune_seeds=2)
        if not 0 < self.warmup_updates < self.updates:
            raise ValueError(f"warmup_updates must lie between 0 and updates={self.updates}, got {self.warmup_updates}")
        if not 1 <= self.validations <= self.updates:
            raise ValueError(f"validations must lie in [1, updates={self.updates}], got {self.validations}")
        if not self.post_lr < self.pre_lr:
            raise ValueError(f"post_lr={self.post_lr} must be below pre_lr={self.pre_lr}: the paper's claim is of that")
        rising = list(self.checkpoints) == sorted(set(self.checkpoints))
        if not self.checkpoints or not rising or self.checkpoints[0] <= 0 or self.checkpoints[-1] > 1:
            raise ValueError(f"checkpoints must be rising parts of a run in (0, 1], got {self.checkpoints}")
        self.training()

    @property
    def arms(self) -> tuple[PretrainingArm, ...]:
        """The paper's two, then each at the other's rate."""
        post, pre = (POST, self.warmup_updates), (PRE, 0)
        arms = (*post, self.post_lr), (*pre, self.pre_lr), (*post, self.pre_lr), (*pre, self.post_lr)
        return tuple(PretrainingArm(*arm) for arm in arms)

    @property
    def pairs(self) -> tuple[ArmPair, ...]:
        """As the paper compares them, and at the same rates, as it does not."""
        own_post, own_pre, post, pre = self.arms
        return (
            ArmPair(f"each at its own rate ({own_post.peak_lr:g} and {own_pre.peak_lr:g})", own_post, own_pre),
            ArmPair(f"both at {pre.peak_lr:g}", own_post, pre),
            ArmPair(f"both at {post.peak_lr:g}", post, own_pre),
        )

    @property
    def tuned_updates(self) -> tuple[int, ...]:
        """The checkpoints that are fine-tuned: validations, so that each has a loss beside it."""
        every = self.validate_every
        return tuple(min(self.updates, max(1, round(part * self.updates / every)) * every) for part in self.checkpoints)

    @property
    def validate_every(self) -> int:
        return max(1, self.updates // self.validations)

    def training(self) -> MaskedRunConfig:
        """What all arms share; placement, warm-up, rate and seed are still to be chosen."""
        return MaskedRunConfig(
            data=TextDataConfig(**settings_of(self, "corpus", "sequence_length", "batch_sequences")),
            model=EncoderConfig(
                **settings_of(self, "width", "ffn_width", "heads", "blocks", "positions", "dropout"),
                attention_dropout=self.dropout,
            ),
            optimizer=OptimizerConfig(name="adamw", betas=self.betas, weight_decay=self.weight_decay),
            schedule=ScheduleConfig(decay="linear"),
            train=TrainConfig(
                duration=self.updates,
                **settings_of(self, "accumulation", "clip_norm", "device"),
                validate_every=self.validate_every,
                checkpoint_every=self.validate_every,
                keep_checkpoints=self.validations + 2,
                threads=1,
            ),
            masked_lm=MaskedConfig(valid_sequences=self.valid_sequences),
        )


def check_inputs(config: Figure5Config) -> None:
    """Raise UserError that says how to come by what is not there."""
    refuse_missing(config.corpus, "corpus", "normscope data documents")
    for task in config.tasks:
        for name in ("train.tsv", "dev.tsv"):
            if not (Path(config.glue) / task / name).is_file():
                raise UserError(
                    f"no {Path(config.glue) / task / name}: give the folder of GLUE's files with --set glue=FOLDER, or "
                    "leave the fine-tuning out with --set 'tasks=[]'"
                )


SCALES = scales(
    Figure5Config,
    smoke={
        "corpus": TOY, "seeds": 1, "width": 16, "ffn_width": 32, "heads": 2, "blocks": 2, "sequence_length": 24,
        "batch_sequences": 8, "updates": 12, "warmup_updates": 3, "validations": 3, "valid_sequences": 20, "tasks": (),
        "tune_sequence_length": 24, "positions": 24,
    },
    paper={
        "seeds": 1, "width": 768, "ffn_width": 3072, "heads": 12, "blocks": 12, "dropout": 0.1, "sequence_length": 512,
        "batch_sequences": 32, "accumulation": 8, "updates": 1_000_000, "warmup_updates": 10_000, "post_lr": 1e-4,
        "pre_lr": 3e-4, "validations": 100, "valid_sequences": 10_000,
        "checkpoints": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "tune_rates": (1e-5, 2e-5, 3e-5, 5e-5, 1e-4),
        "tune_epochs": (3, 5, 8), "tune_sequence_length": 128, "positions": 512, "device": "auto",
    },
)  # fmt: skip
"""Cost: smoke takes seconds; cpu some 90 minutes of one core for the pre-trainings and three hours for fine-tuning;
paper four pre-trainings of BERT-base over 1.3e11 tokens each."""
