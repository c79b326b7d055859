"""The trainings of every placement, with as many parameters as Pre-LN, and what is inside them."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.compare.grid import Cell
from normscope.errors import UserError
from normscope.measure import Estimate
from normscope.runs.config import replaced
from normscope.settings.tables import to_toml

from ..engine.ladders import Ladder, LadderArm, WarmupPair, climb
from ..engine.models import StudyTask
from ..engine.pieces import Pieces
from .config import BASE, StreamsConfig
from .measure import gradient_spread, measured

_Measures = Mapping[str, float]
"""Of one run: worth_nats, turned, correlation and gradient_spread."""
MEASURES = ("worth_nats", "turned", "correlation", "gradient_spread")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRuns:
    """All placements of one task."""

    task: str
    unigram_nats: float
    pairs: Mapping[str, WarmupPair]
    """By placement."""
    sizes: Mapping[str, tuple[int, int]]
    """Feed-forward width and parameters, by placement."""
    inside: Mapping[tuple[str, int], Sequence[_Measures]]
    """By placement and warm-up: of the runs at the best rate, one a seed; one that did not stay finite has none."""

    @property
    def words(self) -> str:
        """The task's name in a sentence."""
        return self.task.replace("-", " ")

    @property
    def placements(self) -> list[str]:
        """The lowest loss first, each with the better of its warm-ups."""
        return sorted(self.pairs, key=lambda name: self.pairs[name].better.mean_nats)

    def less_base(self, placement: str) -> Estimate:
        """By how many nats it ends above Pre-LN, each at its better warm-up; over seeds in pairs."""
        return self.pairs[placement].better.less(self.pairs[BASE].better)

    def mean_inside(self, placement: str, ladder: Ladder, name: str) -> float:
        """Mean over the seeds that have it; NaN for none."""
        values = [one[name] for one in self.inside[placement, ladder.warmup_updates]]
        return math.fsum(values) / len(values) if values else math.nan


def trained(config: StreamsConfig, trial: StudyTask, pieces: Pieces) -> StreamRuns:
    """Train what the folder lacks, and measure the runs at the best rates."""
    widths = {name: equal_ffn_width(trial, name) for name in config.trained(trial.model)}
    arms = {
        name: LadderArm(
            base=replaced(trial.base, model__ffn_width=width),
            placement=name,
            folder=pieces.folder / trial.name,
            peak_lrs=config.peak_lrs,
        )
        for name, width in widths.items()
    }
    pairs = climb(arms, config, pieces, stage=trial.words)
    return StreamRuns(
        task=trial.name,
        unigram_nats=trial.unigram_nats,
        pairs=pairs,
        sizes={name: (width, parameters(trial, name, width)) for name, width in widths.items()},
        inside={
            (name, ladder.warmup_updates): [_measured(trial, one.cell, pieces) for one in ladder.at_best if one.finite]
            for name, pair in pairs.items()
            for ladder in (pair.without, pair.warm)
        },
    )


def parameters(trial: StudyTask, placement: str, ffn_width: int) -> int:
    """How many numbers are trained."""
    config = replaced(trial.base, model__placement=placement, model__ffn_width=ffn_width)
    built = trial.task.build(config, trial.task.codec_of(trial.corpus))
    return sum(p.numel() for p in built.parameters() if p.requires_grad)


def equal_ffn_width(trial: StudyTask, placement: str) -> int:
    """The feed-forward width at which the model has as many parameters as Pre-LN's, as nearly as can be.

    Raises UserError where the placement's own parameters leave nothing for a feed-forward.
    """
    model: Any = trial.base.model
    full: int = model.ffn_width
    wanted, here = parameters(trial, BASE, full), parameters(trial, placement, full)
    # The count is a straight line in the width.
    each = here - parameters(trial, placement, full - 1)
    width = full - round((here - wanted) / each)
    if width < 1:
        raise UserError(
            f"{placement} has {here - wanted:,} parameters more than {BASE}, and its feed-forward of {full:,} has "
            f"{full * each:,} to take them from: make ffn_width larger, or leave it out of `placements`"
        )
    return width


def _measured(trial: StudyTask, cell: Cell, pieces: Pieces) -> _Measures:
    """What is measured of a run, once, and what it logged of its gradients before the first update."""
    asked = {"run": cell.name, "configuration": hashlib.sha256(to_toml(cell.config).encode()).hexdigest()}
    inside = pieces.get(
        f"{trial.name}/{cell.name}", asked, measured, trial.task, trial.corpus, cell.config, cell.folder
    )
    norms = next(event["gradient_norms"] for event in cell.folder.events() if event["event"] == "initialisation")
    return {**inside, "gradient_spread": gradient_spread(norms)}
