"""Figures and tables of the study of trainings that are foretold."""

from collections.abc import Callable, Sequence

from normscope.report.chart import Panel
from normscope.report.words import counted

from ..engine.ladders import final_losses
from ..engine.page import StudyFigure, StudyTable, curves, line, scatter, table
from .config import AmplificationTrainingsConfig
from .foretelling import MEASURED, WAYS
from .models import ClimbedModel
from .skill import LEFT_OUT, MEASURES, ForetoldTrainings, FoundByChange


def of_blocks(blocks: int) -> str:
    """Names a depth in words, of both stacks."""
    return f"{blocks} + {blocks} blocks"


def figures(
    config: AmplificationTrainingsConfig, models: Sequence[ClimbedModel]
) -> list[StudyFigure]:
    """Draws where trainings end over the rate; changes beside their predictions, and beside the
    largest rate that learns.
    """
    by_depth: dict[int, list[ClimbedModel]] = {blocks: [] for blocks in config.depths}
    for one in models:
        by_depth[one.blocks].append(one)
    largest = {}
    for blocks, some in by_depth.items():
        largest[of_blocks(blocks)] = [
            (one.measured_mean, one.largest_lr) for one in some if one.largest_lr is not None
        ]
    return [
        StudyFigure.of_panels(
            name="losses",
            title="Where trainings end, over the peak rate",
            caption=(
                f"Means over {counted(config.seeds, 'seed')}, in a band from the lowest to the "
                "highest. A run that did not stay finite counts as its loss at initialisation."
            ),
            panels=[_losses(blocks, some) for blocks, some in by_depth.items()],
        ),
        StudyFigure.of_panels(
            name="changes",
            title="The change of the logits by the first update, and what becomes of trainings",
            caption=(
                "Each point is a model. Left: as the formula predicts it and as it was measured, "
                "at a rate of 1, with the line on which they are equal. Right: the largest rate of "
                "the ladder at which a model learned, over its measured change."
            ),
            panels=[
                _beside_predictions(by_depth),
                scatter(
                    "the largest rate that learns",
                    largest,
                    xlabel="measured E(f* − f)² / rate²",
                    ylabel="largest peak rate that learned",
                    log_x=True,
                    log_y=True,
                ),
            ],
        ),
    ]


def _losses(blocks: int, models: Sequence[ClimbedModel]) -> Panel:
    return curves(
        of_blocks(blocks),
        {one.title: final_losses(one.runs) for one in models},
        x=models[0].peak_lrs,
        xlabel="peak rate",
        ylabel="last loss, nats",
        log_x=True,
        level=("unigram baseline", models[0].unigram_nats),
    )


def _beside_predictions(by_depth: dict[int, list[ClimbedModel]]) -> Panel:
    points = {}
    for blocks, some in by_depth.items():
        points[of_blocks(blocks)] = [
            (one.predicted, one.measured_mean) for one in some if one.predicted is not None
        ]
    every = [value for some in points.values() for pair in some for value in pair] or [1.0]
    ends = [min(every), max(every)]
    return scatter(
        "measured and predicted",
        points,
        xlabel="predicted E(f* − f)² / rate²",
        ylabel="measured",
        log_x=True,
        log_y=True,
        beside=[line("equal", "claimed", -1, ends, ends)],
    )


def tables(found: FoundByChange, models: Sequence[ClimbedModel]) -> list[StudyTable]:
    """Lists how well every way foretells, and the models."""
    return [_skills(found), _models(models)]


_SkillRow = tuple[str, str, ForetoldTrainings]
"""A row: what was left out, a way, and the trainings that it was asked about."""


def _skills(found: FoundByChange) -> StudyTable:
    rows: list[_SkillRow] = []
    for left_out in LEFT_OUT:
        for name, way in WAYS.items():
            there = found[way.change or MEASURED]
            if there is not None:
                rows.append((left_out, name, there))

    def skill_by(measure: str) -> Callable[[_SkillRow], float]:
        return lambda row: row[2].skill(row[0], row[1], measure)

    return table(
        "How well trainings are foretold that the fit has not seen",
        rows,
        [
            ("left out", lambda row: row[0]),
            ("foretold by", lambda row: WAYS[row[1]].told),
            ("trainings", lambda row: len(row[2].trainings)),
            *((f"{one.told}, {one.unit}", skill_by(name)) for name, one in MEASURES.items()),
        ],
    )


def _models(models: Sequence[ClimbedModel]) -> StudyTable:
    """A row a model, those whose output moves most first."""
    return table(
        "Models: their change by the first update, and their trainings",
        sorted(models, key=lambda one: -one.measured_mean),
        [
            ("placement", lambda one: one.title),
            ("blocks", lambda one: one.blocks),
            ("measured change", lambda one: one.measured_mean),
            ("predicted", lambda one: one.predicted),
            ("best rate", lambda one: one.peak_lrs[one.best_place]),
            ("loss at it, nats", lambda one: min(one.mean_nats)),
            ("largest rate that learned", lambda one: one.largest_lr),
        ],
    )
