"""The paper's figure 5: BERT's validation loss over updates, and its checkpoints fine-tuned."""

from ..protocol.study import Findings, Pieces, Study
from .claims import claims
from .config import SCALES, Figure5Config, check_inputs
from .curves import chance, pretrained
from .page import conditions, data, figures, tables
from .tuning import tuned_checkpoints


def run(config: Figure5Config, pieces: Pieces) -> Findings:
    """Raises UserError for text or tasks that are not there, and for a training that fails."""
    check_inputs(config)
    curves = pretrained(config, pieces)
    by_chance = chance(config)
    tuned = {task: tuned_checkpoints(config, task, curves, pieces) for task in config.tasks}
    return Findings(
        conditions=conditions(config, curves, tuned),
        claims=claims(config, curves, by_chance.nll_nats, tuned),
        figures=figures(curves, by_chance, tuned),
        tables=tables(config, curves, tuned),
        data=data(config, curves, by_chance, tuned),
    )


STUDY = Study(
    name="figure-5",
    title="BERT with Post-LN and Pre-LN: the paper's Figure 5",
    question="Does Pre-LN without warm-up reach a lower validation loss in fewer updates than Post-LN with it, also at "
    "the same rate, and are its checkpoints the better ones to fine-tune?",
    scales=SCALES,
    run=run,
)
