"""Changes by updates over depth, and the page."""

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .claims import claims
from .config import SCALES, AmplificationConfig
from .grown import growths
from .page import conditions, data, figures, tables
from .stacks import measured


def run(config: AmplificationConfig, pieces: Pieces) -> Findings:
    """One piece a placement, depth and seed."""
    found = measured(config, pieces)
    grown = growths(config, found)
    return Findings(
        conditions=conditions(config),
        claims=claims(config, grown),
        figures=figures(config, grown, found),
        tables=tables(config, grown),
        data=data(config, grown, found),
    )


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
