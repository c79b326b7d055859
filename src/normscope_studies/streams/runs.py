"""Which placements are trained, what their sources promise, and the trainings with what is inside of them."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from normscope.compare.grid import Cell
from normscope.data.opening import TOY
from normscope.errors import UserError
from normscope.measure import Estimate
from normscope.placement import named
from normscope.runs.config import replaced
from normscope.settings.tables import to_toml

from ..engine.checks import check_different, check_positive
from ..engine.ladders import Ladder, LadderArm, WarmupPair, climb
from ..engine.models import PAPER_SIZE, StudyTask, TwoTasksConfig
from ..engine.pieces import Pieces
from ..engine.study import scales
from .measure import gradient_spread, measured

NEW = (
    *("mhc", "hyper-connections", "hyper-connections-static", "independent-hyper-connections", "gated-multi-stream"),
    *("siamese-norm", "siamese-norm-hybrid", "attn-res-inkling", "denseformer", "x0-residual", "x0-residual-modded"),
    *("depth-scaled", "completep", "depth-mup", "minicpm", "granite", "layer-scale", "variance-gate", "gpas"),
    *("zaya", "doge", "parallel", "parallel-two-norms", "normformer", "normformer-fairseq"),
)
OLD = ("t-fixup", "scale-norm", "admin-constant", "hybrid-norm-star", "b2t-rescaled", "attn-res-block", "rezero")
"""One of each family, in the order of their losses in `results/placements_cpu`, the better of two warm-ups each."""
BASE, POST = "pre-ln", "post-ln"
"""What all are compared with, and the one placement that is known to need a warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    """What a source says its placement does beside a Pre-LN of the same size."""

    ends: Literal["lower", "comparable"]
    source: str


PROMISES = {
    "mhc": _Promise(ends="lower", source="Xie et al. 2025, arXiv:2512.24880, section 5"),
    "hyper-connections": _Promise(ends="lower", source="Zhu et al. 2024, arXiv:2409.19606, section 4"),
    "hyper-connections-static": _Promise(ends="lower", source="Zhu et al. 2024, arXiv:2409.19606, section 4"),
    "siamese-norm": _Promise(ends="lower", source="Li et al. 2026, arXiv:2602.08064"),
    "denseformer": _Promise(ends="lower", source="Pagliardini et al. 2024, arXiv:2402.02622, section 4"),
    "x0-residual": _Promise(ends="lower", source="Karpathy 2025, nanochat, which keeps what lowers its loss"),
    "x0-residual-modded": _Promise(ends="lower", source="Jordan et al. 2024, modded-nanogpt, a record of speed"),
    "layer-scale": _Promise(ends="lower", source="Touvron et al. 2021, arXiv:2103.17239, of deep vision Transformers"),
    "gpas": _Promise(ends="lower", source="Chen et al. 2025, arXiv:2506.22049, section 4"),
    "normformer": _Promise(ends="lower", source="Shleifer et al. 2021, arXiv:2110.09456, section 4"),
    "parallel": _Promise(ends="comparable", source="Wang & Komatsuzaki 2021, GPT-J-6B"),
    "parallel-two-norms": _Promise(ends="comparable", source="Black et al. 2022, arXiv:2204.06745, section 2.1"),
}
"""By placement. The others of `NEW` come from public code that states no such comparison, or, as CompleteP and
depth-µP, promise that rates carry over between depths, which this study does not ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig(TwoTasksConfig):
    """Small models on two tasks, alike but for their placement."""

    placements: tuple[str, ...] = NEW
    others: tuple[str, ...] = OLD
    """Older placements, the best first."""
    others_kept: int = 6
    """How many of them are trained: the first that a task's model can have."""
    comparable_nats: float = 0.05
    """What a source calls comparable lies within that of Pre-LN's loss."""
    text: str = "corpora/wikitext2_1000"
    pairs: str = "corpora/multi30k_deen"
    width: int = 48
    ffn_width: int = 192
    """Of Pre-LN. The others have less of it where they have parameters of their own."""
    batch_sequences: int = 16
    max_tokens: int = 512

    def __post_init__(self) -> None:
        TwoTasksConfig.__post_init__(self)
        check_different(self, "placements")
        check_positive(self, "comparable_nats")
        if self.others_kept < 0:
            raise ValueError(f"others_kept must be 0 or more, got {self.others_kept}")
        for name in (*self.placements, *self.others):
            named(name)

    def trained(self, model: str) -> list[str]:
        """The placements that a task's model can have: what all are compared with, the new, the best of the others.

        model: decoder-only or encoder-decoder.
        """
        have = {name: model in named(name).models for name in (*self.placements, *self.others)}
        others = [name for name in self.others if have[name] and name not in self.placements][: self.others_kept]
        new = [name for name in self.placements if have[name]]
        return list(dict.fromkeys([BASE, POST, *new, *others]))


SCALES = scales(
    StreamsConfig,
    smoke={
        "placements": ("mhc", "parallel"), "others": ("rezero",), "peak_lrs": (1e-3, 4e-3), "seeds": 2, "updates": 4,
        "warmup_updates": 2, "text": TOY, "pairs": TOY, "toy_pairs": 300, "width": 16, "ffn_width": 128, "heads": 2,
        "blocks": 2, "stack_blocks": 1, "sequence_length": 24, "batch_sequences": 4, "max_tokens": 256,
    },
    paper={**PAPER_SIZE},
)  # fmt: skip
"""Cost: smoke takes seconds; cpu some 900 runs of ten seconds to half a minute of one core; paper, with models of 80
million parameters, about 1,900 runs of an hour of an accelerator."""


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

    def ladders(self, placement: str) -> tuple[Ladder, Ladder]:
        """Without warm-up and with it."""
        return self.pairs[placement].ladders

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
