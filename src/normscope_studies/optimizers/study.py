"""The cross of placement, optimiser and warm-up: its runs, its verdicts and its page."""

from normscope.compare.manifest import sources
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .arms import base_config, trained
from .claims import claims
from .config import SCALES, OptimizersConfig
from .figures import figures
from .tables import conditions, data, tables
from .verdicts import pairings


def run(config: OptimizersConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    base = base_config(config)
    corpus = LANGUAGE_MODEL.open(base)
    parameters = sum(p.numel() for p in LANGUAGE_MODEL.build(base, corpus.tokeniser).parameters())
    arms = trained(config, pieces)
    cells = {cell.folder.path: cell for arm in arms.values() for cell in arm.cells}
    trained_by, unigram_nats = sources(cells.values()), LANGUAGE_MODEL.chance_nats(corpus)
    found = pairings(config, arms)
    return Findings(
        conditions=conditions(config, unigram_nats, parameters, trained_by),
        claims=claims(config, found),
        figures=figures(config, found),
        tables=tables(config, found),
        data=data(found, trained_by, unigram_nats),
    )


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
