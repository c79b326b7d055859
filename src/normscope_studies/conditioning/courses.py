"""What is trained and when it is looked at; and what was seen: spreads over blocks, and where they leave a factor."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.data.opening import TOY, TextDataConfig
from normscope.evidence.estimates import Floats, estimate
from normscope.measure import Estimate
from normscope.model import DecoderConfig
from normscope.optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig
from normscope.placement import named, registered
from normscope.tasks.language_model import LanguageModelRunConfig
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, predict
from normscope.train import TrainConfig

from ..engine.checks import check_defined_for, check_different, check_least, check_positive, check_rising
from ..engine.models import refuse_missing, settings_of
from ..engine.study import scales

POST, PRE = "post-ln", "pre-ln"
TELLING = (POST, PRE, "deepnorm", "peri-ln", "residual", "rezero", "mix-ln", "keel")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditioningConfig:
    """Small decoders, alike but for their placement. Raises ValueError for what cannot be trained."""

    placements: tuple[str, ...] = ()
    """Trained once, at the first rate; without any, every placement that is defined for a decoder alone."""
    telling: tuple[str, ...] = TELLING
    """Trained at every rate by every seed: what the claims are about."""
    peak_lrs: tuple[float, ...] = (2e-3, 8e-3)
    seeds: int = 3
    updates: int = 300
    warmup_updates: int = 60
    looks: tuple[int, ...] = (1, 5, 10, 20, 40, 60, 90, 120, 160, 200, 250, 300)
    """Updates before which gradients and Jacobians are measured, and whose own size is."""
    validate_every: int = 50
    products: int = 6
    """Of each block's Jacobian and its transpose, a look."""
    jacobian_sequences: int = 4
    """Sequences of the batch that Jacobians are measured on, always the same."""
    stated_factor: float = 2.0
    """How far the spread of gradients may lie above what the theory states of the first update."""
    update_factor: float = 2.0
    """How far update norms may differ between blocks: under Adam the theory states 1 for the first."""
    isometry_factor: float = 2.0
    """How far a block's root-mean-square singular value may lie from 1, upwards or downwards."""
    text: str = TOY
    """A folder made by `normscope data documents`, or `toy`."""
    width: int = 32
    ffn_width: int = 64
    heads: int = 2
    blocks: int = 6
    sequence_length: int = 16
    batch_sequences: int = 16

    def __post_init__(self) -> None:
        check_different(self, "telling", "peak_lrs")
        check_positive(self, "peak_lrs", "seeds", "products", "jacobian_sequences")
        check_defined_for(self, "placements", "telling", model="decoder-only")
        if POST not in self.telling:
            raise ValueError(f"telling must have {POST} among it, whose last loss the others are compared with")
        check_different(self, "looks")
        check_rising(self, "looks")
        if self.looks[0] != 1:
            raise ValueError(f"looks must rise from 1, got {self.looks}")
        if self.looks[-1] > self.updates or self.updates % self.validate_every:
            raise ValueError("the last look must not lie behind `updates`, a multiple of validate_every")
        if not 0 < self.warmup_updates < self.updates:
            raise ValueError(f"warmup_updates must lie between 0 and updates={self.updates}, got {self.warmup_updates}")
        check_least(self, blocks=2)
        if min(self.stated_factor, self.update_factor, self.isometry_factor) <= 1:
            raise ValueError("stated_factor, update_factor and isometry_factor must be above 1")

    @property
    def all_placements(self) -> tuple[str, ...]:
        """The telling ones first."""
        every = self.placements or [name for name in registered() if "decoder-only" in named(name).models]
        return tuple(dict.fromkeys((*self.telling, *every)))

    @property
    def common_lr(self) -> float:
        """The rate at which every placement is trained."""
        return self.peak_lrs[0]


def run_config(config: ConditioningConfig, placement: str, lr: float, seed: int) -> LanguageModelRunConfig:
    """Everything of the theory's setting `paper` but for the text. Raises UserError for text that is not there."""
    refuse_missing(config.text, "text", "normscope data documents")
    return LanguageModelRunConfig(
        seed=seed,
        data=TextDataConfig(
            corpus=config.text, sequence_length=config.sequence_length, batch_sequences=config.batch_sequences
        ),
        model=DecoderConfig(
            placement=placement,
            **settings_of(config, "width", "ffn_width", "heads", "blocks"),
            positions=config.sequence_length,
            position_encoding="sinusoidal",
            embedding_scale="root-width",
            dropout=0.0,
            attention_dropout=0.0,
            activation="relu",
            initialisation="paper",
        ),
        optimizer=OptimizerConfig(name="adam", peak_lr=lr),
        adaptive=AdaptiveConfig(over=config.updates // 2),
        schedule=ScheduleConfig(
            decay="linear", warmup_updates=config.warmup_updates, decay_from_updates=config.warmup_updates
        ),
        train=TrainConfig(
            duration=config.updates, validate_every=config.validate_every, checkpoint_every=config.updates
        ),
    )


def stated_spread(config: ConditioningConfig, placement: str, vocabulary: int) -> float:
    """Largest over smallest gradient norm of a block at initialisation, predicted from the formula alone.

    NaN where a block's is predicted 0, and where the theory does not follow the formula.
    """
    setting = ModelSetting(
        stack="decoder",
        **settings_of(config, "width", "ffn_width", "heads", "blocks"),
        tokens=config.sequence_length,
        sequences=config.batch_sequences,
        vocabulary=vocabulary,
        setting="paper",
    )
    try:
        norms = predict(placement, setting)["decoder"].gradient_norm.values()
    except Unpredictable:
        return math.nan
    blocks = np.sqrt(np.sum([np.square(norm) for norm in norms], axis=0))
    return float(blocks.max() / blocks.min()) if blocks.min() > 0 else math.nan


SCALES = scales(
    ConditioningConfig,
    smoke={
        "placements": ("denseformer",), "telling": (POST, PRE), "peak_lrs": (2e-3,), "seeds": 2, "updates": 6,
        "warmup_updates": 2, "looks": (1, 6), "validate_every": 3, "products": 2, "jacobian_sequences": 1, "width": 16,
        "ffn_width": 16, "blocks": 2, "batch_sequences": 4,
    },
    paper={
        "peak_lrs": (1e-3, 3e-4, 3e-3), "updates": 20_000, "warmup_updates": 2_000,
        "looks": (1, 10, 100, 500, 1_000, 2_000, 4_000, 7_000, 10_000, 14_000, 17_000, 20_000), "validate_every": 1_000,
        "text": "corpora/wikitext2", "width": 512, "ffn_width": 2048, "heads": 8, "blocks": 24, "sequence_length": 256,
        "batch_sequences": 32,
    },
)  # fmt: skip
"""Cost: smoke takes seconds; cpu some hundred trainings of ten seconds to half a minute of one core; paper, with models
of 80 million parameters, about 120 of some hours of an accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One training, (K,) by look; after a loss that was not finite there are no looks."""

    gradient_spread: Floats
    """Largest over smallest gradient norm of a block; NaN where one is 0."""
    update_spread: Floats
    """The same of what the update adds."""
    isometry: Floats
    """Root-mean-square singular values of all blocks' Jacobians, (K, L); NaN for blocks without one."""
    peak: Floats
    """Largest singular value over the root mean square, the largest of all blocks."""
    final_nats: float
    """Of the validation text at the end; of a training that did not stay finite, the loss of its first batch."""
    finite: bool

    @property
    def off_isometry(self) -> Floats:
        """The factor by which the block farthest from it lies from 1, (K,); NaN without Jacobians."""
        found: Floats = np.exp(np.abs(np.log(self.isometry)).max(1))
        return found

    def log_worst(self, what: str) -> float:
        """Logarithm of the largest value over the looks; infinite where the training did not stay finite."""
        if not self.finite:
            return math.inf
        values = getattr(self, what)
        return float(np.log(np.nanmax(values))) if np.isfinite(values).any() else math.nan


def course_of(found: Mapping[str, Any]) -> Course:
    """From what `followed` gives."""
    finals, singular = found["valid_nats"], found["singular"]
    finite = bool(finals) and finals[-1] is not None and found["train_nats"][-1] is not None

    def of_blocks(name: str) -> Floats:
        return _floats([[None if one is None else one[name] for one in look] for look in singular])

    return Course(
        gradient_spread=_spread(found["gradient_norms"]),
        update_spread=_spread(found["update_norms"]),
        isometry=of_blocks("root_mean_square"),
        peak=of_blocks("peak").max(1),
        final_nats=finals[-1] if finite else found["train_nats"][0],
        finite=finite,
    )


def _spread(norms_KL: Sequence[Sequence[float | None]]) -> Floats:
    norms = _floats(norms_KL)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = norms.max(1) / norms.min(1)
    return np.where(np.isfinite(spread), spread, math.nan)


def _floats(rows: Sequence[Sequence[float | None]]) -> Floats:
    return np.asarray([[math.nan if value is None else value for value in row] for row in rows], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementCourses:
    """The trainings of one placement at one rate."""

    placement: str
    lr: float
    stated: float
    """What the theory states of the spread of its gradients at first; NaN where it states none."""
    looks: tuple[int, ...]
    courses: Sequence[Course]
    """One a seed."""

    @property
    def title(self) -> str:
        return named(self.placement).title

    @property
    def held_to(self) -> float:
        """The stated spread, or 1 where gradients are 0 at first and nothing is stated."""
        return 1.0 if math.isnan(self.stated) else self.stated

    @property
    def finals(self) -> list[float]:
        """Last losses in nats, one a seed."""
        return [course.final_nats for course in self.courses]

    @property
    def mean_nats(self) -> float:
        return math.fsum(self.finals) / len(self.finals)

    @property
    def finite(self) -> bool:
        """Whether every training stayed so."""
        return all(course.finite for course in self.courses)

    def worst(self, what: str) -> Estimate:
        """Logarithm of the largest value over the looks, over seeds; what: of a `Course`, (K,). Infinite where a
        training did not stay finite."""
        return estimate([course.log_worst(what) for course in self.courses])

    def worst_spread(self) -> Estimate:
        """Logarithm of the largest spread of gradients over what it is held to."""
        return estimate([course.log_worst("gradient_spread") - math.log(self.held_to) for course in self.courses])

    def mean(self, what: str) -> Floats:
        """Geometric mean over the seeds that stayed finite, (K,); NaN without any."""
        kept = [getattr(course, what) for course in self.courses if course.finite]
        return np.exp(np.log(kept).mean(0)) if kept else np.full(len(self.looks), math.nan)

    def left(self, limit: float) -> int | None:
        """The first look at which the mean spread of gradients lies above `limit` times what it is held to."""
        places = np.flatnonzero(self._outside(limit))
        return self.looks[int(places[0])] if len(places) else None

    def back(self, limit: float) -> int | None:
        """The look from which on it lies below again; None where it never left, or never came back."""
        outside = self._outside(limit)
        if not outside.any() or outside[-1]:
            return None
        return self.looks[int(np.flatnonzero(outside)[-1]) + 1]

    def _outside(self, limit: float) -> Any:
        return self.mean("gradient_spread") > limit * self.held_to
