"""How changes and best rates move with width and depth, as exponents, and whether they let a rate carry over."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import NamedTuple

from normscope.evidence.estimates import exponent, pooled_exponent
from normscope.evidence.judging import Answer, lies_within
from normscope.measure import Estimate
from normscope.measure.line import lowest
from normscope.optim import OptimizerConfig
from normscope.settings.tables import to_toml
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig

from ..engine.ladders import Ladder, LadderArm, LadderRun, WarmupPair, climb
from ..engine.models import language_model
from ..engine.pieces import Pieces
from .config import AXES, TransferConfig
from .measure import WHAT, coordinates


class SizedModel(NamedTuple):
    """A placement at one size."""

    placement: str
    width: int
    blocks: int


Changes = Mapping[SizedModel, Sequence[Mapping[str, Sequence[float]]]]
"""Of each seed what `measure.coordinates` gives."""
SizePairs = Mapping[SizedModel, WarmupPair]


class Carries(StrEnum):
    """Whether something is the same at every size."""

    TRANSFERS = "transfers"
    DRIFTS = "drifts"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """An exponent over width or depth."""

    placement: str
    axis: str
    of: str
    """What changes: `output` or `logits` after so many updates, or the best rate with so much warm-up."""
    at: int
    """Updates, of the check or of the warm-up."""
    found: Estimate
    edge: float
    at_an_end: int = 0
    """Sizes whose best rate is the ladder's first or last: it may lie beyond."""

    @property
    def holds(self) -> Answer:
        """Whether the exponent is 0; undecided, too, where a best rate may lie beyond the ladder."""
        unknown = self.at_an_end or math.isnan(float(self.found.half_width))
        return None if unknown else lies_within(self.found, 0.0, self.edge)

    @property
    def carries(self) -> Carries:
        """The answer in a word."""
        return {True: Carries.TRANSFERS, False: Carries.DRIFTS, None: Carries.UNDECIDED}[self.holds]


def run_config(config: TransferConfig, placement: str, width: int, blocks: int) -> LanguageModelRunConfig:
    """Rate, warm-up and seed are still to be chosen. Raises UserError for text that is not there."""
    return language_model(
        config,
        preset=config.preset,
        sizes={
            "placement": placement,
            "width": width,
            "ffn_width": round(config.ffn_ratio * width),
            "heads": width // config.head_width,
            "blocks": blocks,
        },
        optimizer=OptimizerConfig(name="adam"),
    )


def sized(config: TransferConfig) -> list[SizedModel]:
    """Every placement at every size of either axis."""
    sizes = dict.fromkeys(size for axis in AXES for size in config.sizes(axis))
    return [SizedModel(placement, *size) for placement in config.placements for size in sizes]


def measured(config: TransferConfig, pieces: Pieces) -> Changes:
    """The coordinate checks of every placement, size and seed; those that the folder has are not made again."""
    models = sized(config)
    corpus = LANGUAGE_MODEL.open(run_config(config, *models[0]))
    found: dict[SizedModel, list[dict[str, list[float]]]] = {}
    for model, seed in pieces.each("coordinate checks", list(product(models, range(1, config.seeds + 1)))):
        of = run_config(config, *model)
        options = {"seed": seed, "rate": config.coordinate_lr, "after": config.coordinate_updates}
        made_of = {"configuration": hashlib.sha256(to_toml(of).encode()).hexdigest(), "corpus": corpus.fingerprint}
        name = f"{model.placement}/width-{model.width}_blocks-{model.blocks}_seed-{seed}"
        piece = pieces.get(name, {**made_of, **options}, coordinates, of, corpus, **options)
        found.setdefault(model, []).append(piece)
    return found


def trained(config: TransferConfig, pieces: Pieces) -> dict[SizedModel, WarmupPair]:
    """Train what the folder lacks. Raises UserError for a training that failed, and Interrupted."""
    arms = {
        model: LadderArm(
            base=run_config(config, *model),
            placement=model.placement,
            folder=pieces.folder / f"width-{model.width}_blocks-{model.blocks}",
            peak_lrs=config.peak_lrs,
        )
        for model in sized(config)
    }
    return climb(arms, config, pieces, best_rates=0)


def best_lrs(ladder: Ladder) -> list[float]:
    """Of each seed, by the parabola through the lowest loss and its neighbours over the logarithm of the rate."""
    logs = [math.log(lr) for lr in ladder.peak_lrs]
    return [math.exp(lowest(logs, [_counted(run) for run in row])) for row in ladder.runs]


def at_an_end(ladder: Ladder) -> bool:
    """Whether a seed's lowest loss is at the ladder's first or last rate: its best may lie beyond."""
    rows = [[_counted(run) for run in row] for row in ladder.runs]
    return any(row.index(min(row)) in (0, len(row) - 1) for row in rows)


def _counted(run: LadderRun) -> float:
    return run.final_nats if run.finite else math.inf


def coordinate_drifts(config: TransferConfig, found: Changes) -> list[Drift]:
    """Of output and logits, after every number of updates, along both axes."""
    drifts = []
    for placement, axis, of in product(config.placements, AXES, WHAT):
        seeds = [found[SizedModel(placement, *size)] for size in config.sizes(axis)]
        for place, update in enumerate(config.coordinate_updates):
            moved = [[seed[of][place] for seed in row] for row in zip(*seeds, strict=True)]
            along = exponent(config.along(axis), moved)
            drifts.append(
                Drift(placement=placement, axis=axis, of=of, at=update, found=along, edge=config.coordinate_edge)
            )
    return drifts


def rate_drifts(config: TransferConfig, pairs: SizePairs) -> list[Drift]:
    """Of the best rate, for every warm-up along both axes."""
    drifts = []
    for placement, axis, warmup in product(config.placements, AXES, config.warmups):
        along = [pairs[SizedModel(placement, *size)] for size in config.sizes(axis)]
        ladders = [pair.warm if warmup else pair.without for pair in along]
        best = list(zip(*map(best_lrs, ladders), strict=True))
        drifts.append(
            Drift(
                placement=placement,
                axis=axis,
                of="best rate",
                at=warmup,
                found=pooled_exponent(config.along(axis), best),
                at_an_end=sum(map(at_an_end, ladders)),
                edge=config.rate_edge,
            )
        )
    return drifts
