"""The paper's figure 5: BERT's validation loss over updates, and its checkpoints fine-tuned."""

from normscope.compare.manifest import sources

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .claims import claims
from .conditions import conditions
from .config import SCALES, Figure5Config, check_inputs
from .curves import cells_of, chance, pretrained
from .figures import figures
from .tables import data, tables
from .tuning import tuned_checkpoints


def run(config: Figure5Config, pieces: Pieces) -> Findings:
    """Raises UserError for text or tasks that are not there, and for a training that fails."""
    check_inputs(config)
    cells = cells_of(config, pieces)
    curves = pretrained(config, cells, pieces)
    trained_by = sources(cells)
    by_chance = chance(config)
    tuned = {task: tuned_checkpoints(config, task, curves, pieces) for task in config.tasks}
    return Findings(
        conditions=conditions(config, curves, tuned, trained_by),
        claims=claims(config, curves, by_chance.nll_nats, tuned),
        figures=figures(curves, by_chance, tuned),
        tables=tables(config, curves, tuned),
        data=data(config, curves, by_chance, tuned) | {"runs": trained_by},
    )


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
