"""Very deep trainings: what is trained, and the page."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from normscope.compare.grid import Cell
from normscope.report.chart import Panel
from normscope.report.words import joined, number
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.estimates import estimate, plain_estimate
from ..engine.judging import bigram_nats
from ..engine.ladders import climb, in_words, machines, sources
from ..engine.page import Findings, StudyFigure, StudyTable, curves, line, table
from ..engine.pieces import Pieces
from ..engine.study import Study
from ..optimizers.page import rates
from .claims import DeepFound, DeepTrainings, claims, losses_of, windowed
from .config import SCALES, DeepConfig


def run(config: DeepConfig, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for text that is not there, and for a training that
    fails.
    """
    shallowest = config.at(next(iter(config.widths)))
    corpus = LANGUAGE_MODEL.open(shallowest.base())
    found = _trained(config, pieces)
    unigram = LANGUAGE_MODEL.chance_nats(corpus)
    train, valid = (np.asarray(corpus.splits[name].tokens) for name in ("train", "valid"))
    bigram = bigram_nats(train, valid)
    cells = [cell for own in found.values() for one in own.values() for cell in one.ladder.cells]
    runs = _sources(cells)
    return Findings(
        conditions=conditions(config, (unigram, bigram))
        | {"trained by": in_words(runs), "machine": machines(cells)},
        claims=claims(config, found, unigram),
        figures=figures(config, found, unigram),
        tables=[ends(found, unigram)],
        data={
            "unigram_nats": unigram,
            "bigram_nats": bigram,
            "trainings": [_data(one, unigram) for own in found.values() for one in own.values()],
            "runs": runs,
        },
    )


def _trained(config: DeepConfig, pieces: Pieces) -> dict[int, dict[str, DeepTrainings]]:
    """Returns the trainings by depth and placement; the ladders of all depths are climbed first."""
    ladders = climb(
        dict.fromkeys(config.arms, config.peak_lrs),
        partial(config.cells, pieces.folder),
        pieces,
        climbing=config.ladder_seeds,
        seeds=config.seeds,
        best_rates=1,
    )
    found: dict[int, dict[str, DeepTrainings]] = {blocks: {} for blocks in config.widths}
    for (placement, words, _), ladder in ladders.items():
        blocks = int(words)
        found[blocks][placement] = DeepTrainings(
            placement=placement, blocks=blocks, ladder=ladder, windows=config.windows
        )
    return found


def _sources(cells: list[Cell]) -> dict[str, Any]:
    """Returns the sources by depth and run, as runs of two depths have one name."""
    found = {}
    for cell in cells:
        for name, source in sources([cell]).items():
            found[f"{cell.above.name}/{name}"] = source
    return found


def figures(config: DeepConfig, found: DeepFound, unigram_nats: float) -> list[StudyFigure]:
    """The loss over the updates at the best rate, and over the rate; a panel a depth."""
    return [
        StudyFigure.of_panels(
            name="courses",
            title="The training loss at the best rate",
            caption=f"Means over {config.windows} stretches of each run: the mean over the seeds "
            "in their range. Dots are the unigram baseline, of a model that knows how often each "
            "token occurs and no more.",
            panels=[_courses(config, found[blocks], unigram_nats) for blocks in found],
        ),
        StudyFigure.of_panels(
            name="rates",
            title="The loss over the rate",
            caption="Mean over the seeds of the ladder with their range. A run that did not stay "
            "finite counts as its loss at initialisation.",
            panels=[_rates(blocks, own) for blocks, own in found.items()],
        ),
    ]


def _rates(blocks: int, own: Mapping[str, DeepTrainings]) -> Panel:
    ladders = {one.title: one.ladder for one in own.values()}
    return rates(f"{blocks:,} blocks", ladders)


def _courses(config: DeepConfig, own: Mapping[str, DeepTrainings], unigram_nats: float) -> Panel:
    """Draws the losses of one depth; a run that was lost is left out, as it has no losses to the
    end.
    """
    x = windowed(range(1, config.updates + 1), config.windows).tolist()
    rows = {}
    for one in own.values():
        if one.steady:
            rows[one.title] = [
                windowed(losses_of(run), config.windows).tolist() for run in one.ladder.at_best
            ]
    blocks = next(iter(own.values())).blocks
    return curves(
        f"{blocks:,} blocks",
        rows,
        x=x,
        xlabel="update",
        ylabel="training loss, nats",
        beside=[line("unigram baseline", "claimed", -1, x, unigram_nats)],
    )


def ends(found: DeepFound, unigram_nats: float) -> StudyTable:
    """A row a depth and placement."""
    return table(
        "Where the runs end at the best rate of the ladder (* its first or last), and how far "
        "their training loss rose on the way",
        [one for own in found.values() for one in own.values()],
        [
            ("blocks", lambda one: one.blocks),
            ("placement", lambda one: one.title),
            ("rate", lambda one: one.ladder.rate),
            ("last loss", lambda one: estimate(one.ladder.finals)),
            ("below unigram", lambda one: one.below(unigram_nats)),
            ("learned", lambda one: "yes" if one.learned(unigram_nats) else "no"),
            ("largest rise", lambda one: estimate(one.rises) if one.steady else "a run was lost"),
            ("lost on the ladder", lambda one: f"{one.ladder.lost} of {_climbed(one)}"),
        ],
    )


def _climbed(one: DeepTrainings) -> int:
    return sum(len(row) for row in one.ladder.runs)


def conditions(config: DeepConfig, baselines: tuple[float, float]) -> dict[str, str]:
    """Says how it was measured."""
    deepest = config.at(list(config.widths)[-1])
    sizes = joined([f"{blocks:,} blocks of width {width}" for blocks, width in _sizes(config)])
    return {
        **deepest.conditions(baselines),
        "models": (
            f"decoders of the Llama preset: {sizes}; a feed-forward {config.ffn_times} times as "
            f"wide, {config.heads} heads; weights drawn as each placement's source draws them. A "
            "block has two sub-layers, which Wang et al. 2022 call a layer"
        ),
        "steadiness": (
            f"training losses of {config.windows} stretches of a run; what one lies above the "
            f"lowest before it, at most {number(config.rise_nats, 2)} nats where a run is steady"
        ),
    }


def _sizes(config: DeepConfig) -> list[tuple[int, int]]:
    return list(config.widths.items())


def _data(one: DeepTrainings, unigram_nats: float) -> dict[str, Any]:
    courses = [windowed(losses_of(run), one.windows) for run in one.ladder.at_best if run.finite]
    return {
        "blocks": one.blocks,
        "placement": one.placement,
        "title": one.title,
        "ladder": one.ladder.data(),
        "below_unigram_nats": plain_estimate(one.below(unigram_nats)),
        "learned": one.learned(unigram_nats),
        "rises_nats": one.rises if one.steady else None,
        "courses_nats": courses,
    }


STUDY = Study(
    title="A hundred blocks and a thousand, trained",
    question=(
        "Does DeepNorm train at a hundred blocks, and narrow at a thousand, without instability; "
        "does Post-LN that deep not train; and does DeepNorm end below both it and Pre-LN?"
    ),
    help="Does DeepNorm train at a thousand blocks?",
    scales=SCALES,
    run=run,
)
