"""Conditioning throughout training: the trainings, what is seen of them, and the page."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from normscope.data.opening import TOY
from normscope.report.chart import Panel
from normscope.runs.config import replaced
from normscope.settings.tables import to_toml
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.estimates import Floats, plain_estimate
from ..engine.judging import bigram_nats
from ..engine.ladders import Ladder, LadderRun, climb, in_words, machines, sources
from ..engine.page import Findings, StudyFigure, StudyTable, ranged, scatter, table
from ..engine.pieces import Pieces
from ..engine.study import Study
from .claims import claims
from .config import SCALES, ConditioningConfig
from .courses import WORSE, GradientCourse, PlacementGradients, course_of, times_worse
from .measure import stable_ranks


def run(config: ConditioningConfig, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for text that is not there, and for a training that
    fails.
    """
    base = config.base()
    corpus = LANGUAGE_MODEL.open(base)
    ladders = climb(
        dict.fromkeys(config.arms, config.peak_lrs),
        partial(config.cells, base, pieces.folder),
        pieces,
        climbing=config.ladder_seeds,
        seeds=config.seeds,
        best_rates=config.best_rates,
    )
    found = {
        placement: PlacementGradients(
            placement=placement,
            ladder=ladder,
            courses=_courses(config, ladder, corpus.fingerprint, pieces),
        )
        for (placement, _, _), ladder in ladders.items()
    }
    cells = [cell for ladder in ladders.values() for cell in ladder.cells]
    unigram = LANGUAGE_MODEL.chance_nats(corpus)
    train, valid = (np.asarray(corpus.splits[name].tokens) for name in ("train", "valid"))
    bigram = bigram_nats(train, valid)
    runs = sources(cells)
    return Findings(
        conditions=conditions(config, (unigram, bigram))
        | {"trained by": in_words(runs), "machine": machines(cells)},
        claims=claims(config, found, unigram),
        figures=figures(found),
        tables=[ends(config, found)],
        data={
            "unigram_nats": unigram,
            "bigram_nats": bigram,
            "placements": [_data(config, found, one) for one in found.values()],
            "runs": runs,
        },
    )


def _courses(
    config: ConditioningConfig, ladder: Ladder, fingerprint: str, pieces: Pieces
) -> list[GradientCourse]:
    """Returns the courses of the runs that judge; an empty list where one of them did not stay
    finite.
    """
    if not all(run.finite for run in ladder.at_best):
        return []
    judging = list(ladder.at_best)
    return [_course(config, run, fingerprint, pieces) for run in pieces.each("ranks", judging)]


def _course(
    config: ConditioningConfig, run: LadderRun, fingerprint: str, pieces: Pieces
) -> GradientCourse:
    cell = run.cell
    # Where the text lies does not count.
    settings = to_toml(replaced(cell.config, data__corpus=TOY))
    ranks = pieces.get(
        cell.name,
        {"run": settings, "text": fingerprint, "updates": config.looked_at},
        stable_ranks,
        cell.folder.path,
        config.looked_at,
    )
    return course_of(cell.folder.events(), config.looked_at, ranks)


def figures(found: Mapping[str, PlacementGradients]) -> list[StudyFigure]:
    """Spread and rank over the updates, and the worst spread beside the last loss."""
    known = [one for one in found.values() if one.courses]
    over_updates = StudyFigure.of_panels(
        name="courses",
        title="Conditioning of the gradients throughout training",
        caption="Each placement at its best rate: mean over the seeds in their range. Spread: the "
        "largest norm of a block's gradients over the smallest, 1 where all are alike. Stable "
        "rank: the mean over matrices of ‖G‖²_F / ‖G‖²₂.",
        panels=[
            _over_updates(
                "Spread over the blocks",
                "largest over smallest",
                known,
                lambda one: one.updates,
                lambda one: one.spread,
                log_y=True,
            ),
            _over_updates(
                "Stable rank",
                "stable rank",
                known,
                lambda one: one.looked_at,
                lambda one: one.rank,
            ),
        ],
    )
    points = {
        one.title: [(one.ladder.mean_nats, math.exp(float(one.mean(WORSE["spread, worst"]).mean)))]
        for one in known
    }
    return [
        over_updates,
        StudyFigure.of_panels(
            name="spread_and_loss",
            title="The worst spread beside the last loss",
            caption="Means over the seeds, each placement at its best rate.",
            panels=[
                scatter(
                    "",
                    points,
                    xlabel="last validation loss, nats",
                    ylabel="worst spread of gradients",
                    log_y=True,
                )
            ],
        ),
    ]


def _over_updates(
    title: str,
    ylabel: str,
    known: Sequence[PlacementGradients],
    places: Callable[[GradientCourse], Sequence[int]],
    values: Callable[[GradientCourse], Floats],
    *,
    log_y: bool = False,
) -> Panel:
    """Looks at which gradients were 0 in one of the seeds are left out."""
    series = []
    for hue, one in enumerate(known):
        rows = np.array([values(course) for course in one.courses])
        kept = np.isfinite(rows).all(0)
        x = np.array(places(one.courses[0]))[kept]
        series.append(ranged(one.title, hue, x.tolist(), rows[:, kept].tolist()))
    return Panel(title=title, xlabel="update", ylabel=ylabel, series=series, log_y=log_y)


def ends(config: ConditioningConfig, found: Mapping[str, PlacementGradients]) -> StudyTable:
    """Returns the table of the placements' last losses and of their gradients' conditioning, the
    lowest loss first.
    """
    post = found[config.post].ladder

    return table(
        "Where each placement ends at its best rate (* the ladder's first or last), and its "
        "gradients: geometric means over the seeds",
        sorted(found.values(), key=lambda one: one.ladder.mean_nats),
        [
            ("placement", lambda one: one.title),
            ("rate", lambda one: one.ladder.rate),
            ("last loss", lambda one: one.ladder.mean_nats),
            (f"less {found[config.post].title}'s", lambda one: one.ladder.less(post)),
            *((what, partial(_seen, what)) for what in WORSE),
        ],
    )


def _seen(what: str, one: PlacementGradients) -> float | None:
    """Returns a geometric mean over the seeds; ranks as they are, and not their inverse."""
    if not one.courses:
        return None
    value = float(one.mean(WORSE[what]).mean)
    return math.exp(-value if what.startswith("stable rank") else value)


def conditions(config: ConditioningConfig, baselines: tuple[float, float]) -> dict[str, str]:
    """Returns how it was measured."""
    return {
        **config.conditions(baselines),
        "gradients": (
            "of the mean loss per target token of the training's own batches, in nats, before the "
            f"optimiser's step: norms every {config.monitor_every} updates, over all matrices of a "
            f"block; stable ranks at {config.looks} checkpoints and before the first update, of "
            "each matrix by itself"
        ),
        "worst": (
            "the largest spread and the smallest rank of all looks; looks at which a block's "
            "gradients are all 0 are left out, as those of ReZero are before its gates open"
        ),
        "well-conditioned": (
            f"at their worst at most {config.conditioned_factor:g} times worse than Pre-LN's at "
            "theirs"
        ),
    }


def _data(
    config: ConditioningConfig, found: Mapping[str, PlacementGradients], one: PlacementGradients
) -> dict[str, Any]:
    standard = found[config.standard]
    worse = {}
    if one.courses and standard.courses:
        worse = {what: plain_estimate(times_worse(one, standard, what)) for what in WORSE}
    return {
        "placement": one.placement,
        "title": one.title,
        "ladder": one.ladder.data(),
        "less_post_nats": plain_estimate(one.ladder.less(found[config.post].ladder)),
        "log_times_worse_than_standard": worse,
        "courses": [
            {
                "updates": course.updates,
                "spread": course.spread,
                "looked_at": course.looked_at,
                "stable_rank": course.rank,
            }
            for course in one.courses
        ],
    }


STUDY = Study(
    title="Gradients well-conditioned throughout training?",
    question=(
        "Which placement keeps its gradients well-conditioned from the first update to the last, "
        "in their spread over blocks and in their stable rank, and ends as low as Post-LN?"
    ),
    help="Who stays conditioned and ends as low as Post-LN?",
    scales=SCALES,
    run=run,
    reads_checkpoints=True,
)
