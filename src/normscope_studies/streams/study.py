"""Newer residual streams beside older placements: the runs, what is inside them, and the page."""

import hashlib

from normscope.compare.grid import Cell
from normscope.compare.manifest import sources
from normscope.settings.tables import to_toml
from normscope.tasks.run_config import RunConfig

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from ..ladders.runs import Run
from . import ABOUT
from .claims import claims
from .config import SCALES, StreamsConfig
from .figures import figures
from .measure import gradient_spread, measured
from .models import Trial, trials
from .runs import Arm, trained
from .standing import Seen, Standing, stand
from .tables import conditions, data, tables


def run(config: StreamsConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    found = [_standing(config, trial, pieces) for trial in trials(config).values()]
    cells = {
        run.cell.folder.path: run.cell for standing in found for arm in standing.arms.values() for run in _runs(arm)
    }
    trained_by = sources(cells.values())
    return Findings(
        conditions=conditions(config, found, trained_by),
        claims=claims(config, found),
        figures=figures(config, found),
        tables=tables(found),
        data=data(found, trained_by),
    )


def _standing(config: StreamsConfig, trial: Trial, pieces: Pieces) -> Standing:
    arms = trained(config, trial, pieces)

    def look(arm: Arm) -> list[Seen]:
        return [_seen(trial, run.cell, pieces) for run in arm.best if run.finite]

    return stand(config, trial.name, trial.task.chance_nats(trial.corpus), arms, look)


def _seen(trial: Trial, cell: Cell, pieces: Pieces) -> Seen:
    """What is measured of a run, once, and what it logged of its gradients before the first update."""
    config: RunConfig = cell.config
    asked = {"run": cell.name, "configuration": hashlib.sha256(to_toml(config).encode()).hexdigest()}
    inside = pieces.get(f"{trial.name}/{cell.name}", asked, measured, trial.task, trial.corpus, config, cell.folder)
    norms = next(event["gradient_norms"] for event in cell.folder.events() if event["event"] == "initialisation")
    return {**inside, "gradient_spread": gradient_spread(norms)}


def _runs(arm: Arm) -> list[Run]:
    return [run for row in (*arm.ladder, arm.best) for run in row]


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
