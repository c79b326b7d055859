"""Measures what a small model's best peak rate is worth for one four times as deep or as wide."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from normscope.choosing.law import RateFacts, law
from normscope.measure import Estimate, t_quantile
from normscope.placement import named
from normscope.report.chart import Panel
from normscope.report.words import joined

from .advice import carrying
from .advice.cases import AdviceCase
from .advice.ladder import Ladder, ladder_from, piece_of
from .advice.looks import facts_about
from .advice.page import of_ladder
from .advice.tasks import task_of
from .engine.checks import check_least
from .engine.claims import around, claim
from .engine.judging import holm
from .engine.page import Claim, Findings, StudyFigure, StudyTable, line, table
from .engine.pieces import Pieces, side_by_side
from .engine.study import Study, scales

DEPTH = "four times the depth"
WIDTH = "four times the width"
WIDTH_MUP = "four times the width by µP"
_FACTOR = 4
_STAYS = 0.1
"""Exponents of depth this close to 0 move a rate by a seventh over four times the depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTransferConfig:
    """Decoders of one width in several placements and depths, and models of others in two widths.

    Raises ValueError for depths of which none is four times another.
    """

    placements: tuple[str, ...] = (
        "post-ln",
        "pre-ln",
        "deepnorm",
        "peri-ln",
        "olmo-2",
        "lns",
        "completep",
    )
    blocks: tuple[int, ...] = (2, 4, 8, 16)
    """Rising; each begins its search at the best rate of the one before."""
    width: int = 64
    """The width of the placements' decoders."""
    models: tuple[str, ...] = ("nanogpt", "llama", "olmo2", "torch-post")
    texts: tuple[str, ...] = ("characters",)
    """The first one is what the placements' decoders learn."""
    narrow: int = 32
    """Width of the models of others, beside one four times as wide."""
    updates: int = 1_000
    text_file: str = "corpora/wikipedia.txt"
    """Running text, for characters."""
    corpus: str = "corpora/multi30k_deen"
    """A folder made by `normscope data prepare`, for a text of sentence pairs, which none here
    is.
    """
    processes: int = 0
    """Ladders at a time; 0 for as many as there are cores."""

    def __post_init__(self) -> None:
        check_least(self, updates=20, width=16, narrow=16, processes=0)
        if not any(_FACTOR * blocks in self.blocks for blocks in self.blocks) or list(
            self.blocks
        ) != sorted(set(self.blocks)):
            raise ValueError(f"blocks must rise, and one be four times another, got {self.blocks}")

    @property
    def places(self) -> dict[str, str]:
        """Returns where the texts are, as what is measured takes them."""
        return {"text_file": self.text_file, "corpus": self.corpus}

    def deep(self, placement: str) -> list[AdviceCase]:
        """Returns a placement's decoders, rising in depth."""
        return [
            AdviceCase(
                model="decoder",
                text=self.texts[0],  # type: ignore[arg-type]
                initialisation="xavier-uniform",
                placement=placement,
                blocks=blocks,
                width=self.width,
            )
            for blocks in self.blocks
        ]

    def wide(self, model: str, text: str) -> list[AdviceCase]:
        """Returns a narrow one, a wide one, and a wide one by µP."""
        narrow = AdviceCase(model=model, text=text, blocks=2, width=self.narrow)  # type: ignore[arg-type]
        wide = replace(narrow, width=_FACTOR * self.narrow)
        return [narrow, wide, replace(wide, narrower=float(_FACTOR))]


def climbed(
    config: RateTransferConfig, chain: Sequence[AdviceCase], pieces: Pieces
) -> list[Ladder]:
    """Each begins its search at the best rung of the one before, one by µP at the first one's."""
    found: list[Ladder] = []
    for case in chain:
        start = None if not found else found[0 if case.narrower != 1 else -1].best_step
        found.append(ladder_from(case, start, config.updates, config, pieces))
    return found


def growths(
    config: RateTransferConfig, ladders: Sequence[Sequence[Ladder]]
) -> list[carrying.Growth]:
    """All that are four times as large."""
    found = []
    for chain in ladders:
        for smaller in chain:
            for larger in chain:
                a, b = smaller.case, larger.case
                if _FACTOR * a.blocks == b.blocks and a.width == b.width:
                    group, cluster = DEPTH, named(a.placement).title
                elif _FACTOR * a.width == b.width and a.blocks == b.blocks:
                    group, cluster = (WIDTH, a.family) if b.narrower == 1 else (WIDTH_MUP, a.family)
                else:
                    continue
                found.append(
                    carrying.Growth(
                        group=group,
                        cluster=cluster,
                        smaller=smaller,
                        larger=larger,
                        decades=math.log10(_FACTOR),
                    )
                )
    return sorted(found, key=lambda one: (DEPTH, WIDTH, WIDTH_MUP).index(one.group))


def run(config: RateTransferConfig, pieces: Pieces) -> Findings:
    """One piece a training. Raises UserError for a text that is not there."""
    chains = [config.wide(model, text) for text in config.texts for model in config.models]
    deep = [config.deep(placement) for placement in config.placements]
    for chain in (*chains, *deep):
        task_of(chain[0], **config.places, seed=1)
    ladders = side_by_side(
        partial(climbed, config),
        [*chains, *deep],
        processes=config.processes,
        pieces=pieces,
        stage="ladders",
    )
    facts = {
        one.case: RateFacts(**piece_of(one.case, "facts", config, pieces, facts_about)["facts"])
        for chain in ladders
        for one in chain
    }

    def known(one: carrying.Growth) -> float:
        return math.log10(law()(facts[one.larger.case]) / law()(facts[one.smaller.case]))

    found = growths(config, ladders)
    carried = [
        one
        for one in carrying.carried(found, lambda one, other: one.cluster != other.cluster, known)
        # The law is of models as they are, not of those whose parametrisation holds the rate.
        if (one.growth.group, one.way) != (WIDTH_MUP, carrying.KNOWN)
    ]
    deepest = ladders[len(chains) :]
    exponents = depth_exponents(deepest)
    return Findings(
        conditions=conditions(config, ladders),
        claims=[*carrying.claims(carried), *depth_claims(exponents)],
        figures=figures(deepest),
        tables=[
            depths(deepest, exponents),
            *carrying.tables(
                carried,
                "What a model four times as large loses at the smaller one's best rate, in shares "
                "of the gain",
            ),
        ],
        data=carrying.data(carried)
        | {
            "depth_exponents": {
                name: {"mean": one.mean, "half_width": one.half_width, "depths": one.count + 1}
                for name, one in exponents.items()
            }
        }
        | {
            "ladders": [
                {"case": one.case.name} | of_ladder(one) for chain in ladders for one in chain
            ]
        },
    )


def depth_exponents(deep: Sequence[Sequence[Ladder]]) -> dict[str, Estimate]:
    """Fits by placement the slope of the best rate's logarithm over that of the depth, where it
    learned at three depths.

    The interval is that of least squares, of how far the rates lie off the line.
    """
    found = {}
    for chain in deep:
        there = [one for one in chain if one.learned]
        if (count := len(there)) < 3:
            continue
        x, y = np.log10([one.case.blocks for one in there]), np.array([one.best for one in there])
        slope, start = np.polyfit(x, y, 1)
        error = math.sqrt(
            ((y - start - slope * x) ** 2).sum() / (count - 2) / ((x - x.mean()) ** 2).sum()
        )
        found[chain[0].case.placement] = Estimate(
            # One number less than there are depths, as a line has one more to fit than a mean.
            count=count - 1,
            mean=np.asarray(slope),
            deviation=np.asarray(error * math.sqrt(count - 1)),
            half_width=np.asarray(t_quantile(0.95, count - 2) * error),
        )
    return found


def depth_claims(exponents: Mapping[str, Estimate]) -> list[Claim]:
    """Judges whether the best rate falls as the model grows, and whether CompleteP's stays; none
    without an exponent.
    """
    if not exponents:
        return []
    titles = {named(name).title: one for name, one in exponents.items()}
    made = [
        claim(
            "The best rate falls with depth",
            "The best rate of a deeper model is smaller: its exponent of depth is below 0.",
            source="NormScope",
            value="exponent of depth",
            holds=titles,
            decided=holm({title: (one, -math.inf, 0.0) for title, one in titles.items()}),
            beside=f"Corrected by Holm over {len(titles)} placements",
        )
    ]
    if stays := exponents.get("completep"):
        made.append(
            claim(
                "CompleteP's best rate stays over depth",
                "The best rate of CompleteP does not depend on the depth: an exponent of 0 within "
                f"{_STAYS:g}.",
                source="Dey et al. 2025, arXiv:2505.01618",
                value="exponent of depth",
                holds={named("completep").title: stays},
                **around(0.0, _STAYS),
            )
        )
    return made


def depths(deep: Sequence[Sequence[Ladder]], exponents: Mapping[str, Estimate]) -> StudyTable:
    """Best rate and loss by depth, a row a placement."""
    blocks = [one.case.blocks for one in deep[0]]
    return table(
        "The best rate, and the loss at it, by depth",
        deep,
        [
            ("placement", lambda chain: named(chain[0].case.placement).title),
            *(
                (f"best rate, {count} blocks", lambda chain, at=at: 10 ** chain[at].best)
                for at, count in enumerate(blocks)
            ),
            ("exponent of depth", lambda chain: exponents.get(chain[0].case.placement)),
            *(
                (f"nats, {count} blocks", lambda chain, at=at: chain[at].lowest_nats)
                for at, count in enumerate(blocks)
            ),
        ],
    )


def figures(deep: Sequence[Sequence[Ladder]]) -> list[StudyFigure]:
    """Best rates and losses over depth."""
    axes: dict[str, Callable[[Ladder], float]] = {
        "best peak rate": lambda one: 10**one.best,
        "loss at it, nats": lambda one: one.lowest_nats,
    }
    return [
        StudyFigure.of_panels(
            name="depths",
            title="The best rate and the loss at it, by depth",
            caption="Two seeds at the best rung and its neighbours; the best rate by a parabola "
            "through these.",
            panels=[_over_depth(deep, ylabel, of) for ylabel, of in axes.items()],
        )
    ]


def _over_depth(
    deep: Sequence[Sequence[Ladder]], ylabel: str, of: Callable[[Ladder], float]
) -> Panel:
    """Draws a value of every ladder over its depth, a hue a placement."""
    blocks = [float(one.case.blocks) for one in deep[0]]
    series = []
    for hue, chain in enumerate(deep):
        title = named(chain[0].case.placement).title
        series.append(line(title, "measured", hue, blocks, [of(one) for one in chain]))
    return Panel(
        title=ylabel.partition(",")[0],
        xlabel="blocks",
        ylabel=ylabel,
        log_x=True,
        log_y=ylabel == "best peak rate",
        series=series,
    )


def conditions(config: RateTransferConfig, ladders: Sequence[Sequence[Ladder]]) -> dict[str, str]:
    """Says what was trained, and how."""
    every = [one for chain in ladders for one in chain]
    unlearned = sorted(one.case.name for one in every if not one.learned)
    return {
        "over depth": (
            f"decoders of ours of width {config.width}, {', '.join(map(str, config.blocks))} "
            "blocks, Glorot uniform times the placement's gain: "
            f"{joined([named(name).title for name in config.placements])}"
        ),
        "over width": (
            f"models of others of 2 blocks, width {config.narrow} and {_FACTOR * config.narrow}, "
            f"with their own initial weights: {joined(config.models)}"
        ),
        "by µP": (
            "matrices and the head take steps a quarter as large in the wider model, and begin "
            "half as large where they are drawn alike at any width (Yang et al. 2022, table 8); "
            "heads keep their 16 dimensions"
        ),
        "texts": f"{joined(config.texts)}, of {config.text_file} where they are characters",
        "trainings": (
            f"{sum(len(one.outcomes) + len(one.again) for one in every)}, of {config.updates:,} "
            "updates of 256 tokens under AdamW; linear warm-up over 1 % of them, 8 % where "
            "residual sums are normed, then a cosine to a tenth"
        ),
        "rates": "factors of two, until the best has two on either side; the best one is read by a "
        "parabola through it and its neighbours, a loss between rungs by a straight line",
        "seeds": "two, of weights and batches, at the best rung and its neighbours; else one",
        "learned": f"at no rate, and left out: {joined(unlearned)}" if unlearned else "all",
        "the law of known rates": (
            "that of the doctor and of `choose`, over width and sub-layers, which knew none of "
            "these trainings"
        ),
    }


STUDY = Study(
    title="What is the best rate of a small model worth for a larger one?",
    question=(
        "What does a model four times as deep, or four times as wide with µP and without, lose at "
        "the best peak rate of the smaller one, in which placement?"
    ),
    help="What is a small model's rate worth for a large?",
    scales=scales(
        RateTransferConfig,
        smoke={
            "placements": ("post-ln", "pre-ln"),
            "blocks": (1, 4),
            "width": 16,
            "models": ("nanogpt", "torch-post"),
            "texts": ("arithmetic",),
            "narrow": 16,
            "updates": 20,
        },
        paper={"blocks": (6, 12, 24, 48), "width": 256, "narrow": 128, "updates": 10_000},
    ),
    run=run,
)
