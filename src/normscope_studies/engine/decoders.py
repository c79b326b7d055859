"""Small decoders that studies train over ladders of rates, alike but for placement, rate and
warm-up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from normscope.compare.grid import Cell, Grid
from normscope.data.opening import TextDataConfig
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.placement import named
from normscope.report.words import percentage
from normscope.runs.config import replaced
from normscope.settings.validation import validated
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig
from normscope.tasks.registry import with_preset
from normscope.train import TrainConfig

from . import checks
from .judging import LEARNED_NATS

OPTIMIZER = "adamw"
LOSS = "negative log-likelihood per target token of the whole validation split, natural logarithm"


class DecoderArm(NamedTuple):
    """Trainings that differ in their rate and their seed alone."""

    placement: str
    optimizer: str
    warmup_updates: int


class _Asked(Protocol):
    """Names what a study's configuration says of its trainings."""

    @property
    def text(self) -> str: ...
    @property
    def sequence_length(self) -> int: ...
    @property
    def batch_sequences(self) -> int: ...
    @property
    def updates(self) -> int: ...
    @property
    def warmup_updates(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def precision(self) -> str: ...


def decoder_run(
    asked: _Asked, *, preset: str, model: Mapping[str, Any], optimizer: OptimizerConfig
) -> LanguageModelRunConfig:
    """Returns a run of a preset's decoder; placement, rate, warm-up and seed are still to be
    chosen.

    model: what the preset is changed in. Raises UserError for text that is not there.
    """
    checks.refuse_missing(asked.text, "text", "normscope data documents")
    read = TextDataConfig(
        corpus=asked.text,
        sequence_length=asked.sequence_length,
        batch_sequences=asked.batch_sequences,
    )
    table: dict[str, Any] = {
        "task": LANGUAGE_MODEL.name,
        "data": asdict(read),
        "model": {"preset": preset, "positions": asked.sequence_length, **model},
    }
    made = validated(
        LANGUAGE_MODEL.config, with_preset(table, source="the study"), source="the study"
    )
    made = replace(
        made,
        optimizer=optimizer,
        # One decay for all, whatever the warm-up: a straight line to 0 from the end of the longer
        # one.
        schedule=ScheduleConfig(decay="linear", decay_from_updates=asked.warmup_updates),
        train=TrainConfig(
            duration=asked.updates,
            validate_every=asked.updates,
            checkpoint_every=asked.updates,
            keep_checkpoints=1,
            device=asked.device,
            threads=1,
            # Batches so small cost little, and many runs may share a machine.
            input_workers=0,
        ),
    )
    return replaced(made, train__precision=asked.precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLadders:
    """Decoders of the Llama preset under AdamW: few seeds climb a ladder of rates, and others are
    trained at its best.

    A study's configuration derives from it. Raises ValueError for what cannot be trained.
    """

    text: str = "corpora/wikipedia_1000"
    """A folder made by `normscope data documents`, or `toy`."""
    sequence_length: int = 64
    batch_sequences: int = 16
    blocks: int = 8
    width: int = 64
    ffn_width: int = 172
    heads: int = 4
    updates: int = 600
    warmup_updates: int = 60
    """The warm-up of runs that have one. All go to 0 in a straight line from there on."""
    peak_lrs: tuple[float, ...] = (1.1e-3, 2.2e-3, 4.4e-3, 8.8e-3, 1.76e-2)
    """The ladder, rising."""
    ladder_seeds: int = 1
    """Seeds that climb the whole ladder."""
    seeds: int = 3
    """Others, which are trained at the best rates of the ladder and judge."""
    best_rates: int = 1
    """The number of the ladder's rates at which these are trained."""
    weight_decay: float = 0.1
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""
    precision: str = "auto"
    """Numbers that products are computed in, as `train.precision`."""

    def __post_init__(self) -> None:
        checks.check_different(self, "peak_lrs")
        checks.check_rising(self, "peak_lrs")
        checks.check_least(self, ladder_seeds=1, seeds=1, blocks=1)
        if not 1 <= self.best_rates <= len(self.peak_lrs):
            raise ValueError(
                f"best_rates must lie in [1, {len(self.peak_lrs)}], the number of peak_lrs, got "
                f"{self.best_rates}"
            )
        if not 0 < self.warmup_updates < self.updates:
            raise ValueError(
                f"warmup_updates must lie between 0 and updates={self.updates}, got "
                f"{self.warmup_updates}"
            )

    def base(self) -> LanguageModelRunConfig:
        """Returns what all runs share. Raises UserError for text that is not there."""
        return decoder_run(
            self,
            preset="llama",
            model=checks.settings_of(self, "width", "ffn_width", "heads", "blocks"),
            optimizer=OptimizerConfig(name=OPTIMIZER, weight_decay=self.weight_decay),
        )

    def cells(
        self,
        base: LanguageModelRunConfig,
        folder: Path,
        arm: tuple[str, str, int],
        peak_lrs: Sequence[float],
        seeds: range,
    ) -> list[Cell]:
        """Returns the runs of a placement, an optimiser and a warm-up at these rates and seeds."""
        placement, optimizer, warmup_updates = arm
        grid = Grid(
            placements_and_warmups=((placement, warmup_updates),),
            peak_lrs=tuple(peak_lrs),
            optimizers=(optimizer,),
            seeds=len(seeds),
        )
        return grid.cells(replaced(base, seed=seeds.start), folder)

    def conditions(self, baselines: tuple[float, float]) -> dict[str, str]:
        """Returns how the runs are made. baselines: the losses of models that know the frequencies
        of tokens, and of pairs.
        """
        rates = ", ".join(f"{lr:g}" for lr in self.peak_lrs)
        climbing = "one seed" if self.ladder_seeds == 1 else f"{self.ladder_seeds} seeds"
        warmup = percentage(self.warmup_updates / self.updates, 0)
        return {
            "loss": LOSS,
            "models": (
                f"decoders of the Llama preset: {self.blocks} blocks of width {self.width}, "
                f"feed-forward {self.ffn_width}, {self.heads} heads"
            ),
            "text": (
                f"{self.batch_sequences} sequences of {self.sequence_length} tokens a batch; "
                f"unigram baseline {baselines[0]:.3f}, bigram baseline {baselines[1]:.3f}"
            ),
            "training": (
                f"{self.updates:,} updates of AdamW, weight decay {self.weight_decay:g} of "
                "matrices and embeddings, gradients not clipped; full rate to update "
                f"{self.warmup_updates}, {warmup} of all, then in a straight line to 0; products "
                f"in {self.precision}"
            ),
            "rates": (
                f"{rates}: {climbing} on the ladder, then {self.seeds} others at the best, which "
                "judge"
            ),
            "learned": (
                f"ends more than {LEARNED_NATS:g} nats below the unigram baseline; what did not "
                "decides nothing"
            ),
            "seeds": (
                f"{self.seeds} that judge: weights and order; intervals are of 95 %, Student's t, "
                "over seeds in pairs"
            ),
        }


def check_decoders(setting: str, placements: Sequence[str]) -> None:
    """Refuses placements that a decoder alone cannot have. Raises ValueError."""
    for name in placements:
        if "decoder-only" not in named(name).models:
            raise ValueError(f"{setting}: {name} is not defined for a decoder alone")
