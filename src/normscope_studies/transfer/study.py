"""Coordinate checks and ladders of rates over width and depth, and the page."""

import hashlib

from normscope.compare.manifest import sources
from normscope.settings.tables import to_toml
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .claims import claims
from .config import AXES, SCALES, TransferConfig
from .ladders import trained
from .measure import coordinates
from .models import run_config
from .page import conditions, data, figures, tables
from .verdicts import Coordinates, coordinate_drifts, rate_drifts


def run(config: TransferConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    moved = _coordinates(config, pieces)
    ladders = trained(config, pieces)
    cells = {run.cell.folder.path: run.cell for ladder in ladders.values() for row in ladder.runs for run in row}
    trained_by = sources(cells.values())
    checks, rates = coordinate_drifts(config, moved), rate_drifts(config, ladders)
    base = run_config(config, config.placements[0], *config.sizes("width")[0])
    unigram_nats = LANGUAGE_MODEL.chance_nats(LANGUAGE_MODEL.open(base))
    return Findings(
        conditions=conditions(config, unigram_nats, trained_by),
        claims=claims(config, checks, rates),
        figures=figures(config, ladders),
        tables=tables(config, checks, rates),
        data=data(moved, [*checks, *rates], ladders, trained_by),
    )


def _coordinates(config: TransferConfig, pieces: Pieces) -> Coordinates:
    sizes = list(dict.fromkeys(size for axis in AXES for size in config.sizes(axis)))
    corpus = LANGUAGE_MODEL.open(run_config(config, config.placements[0], *sizes[0]))
    found: dict[tuple[str, int, int], list[dict[str, list[float]]]] = {}
    total, done = len(config.placements) * len(sizes) * config.seeds, 0
    for placement in config.placements:
        for width, blocks in sizes:
            of = run_config(config, placement, width, blocks)
            asked = {
                "configuration": hashlib.sha256(to_toml(of).encode()).hexdigest(),
                "rate": config.coordinate_lr,
                "after": config.coordinate_updates,
                "corpus": corpus.fingerprint,
            }
            for seed in range(1, config.seeds + 1):
                pieces.watch("coordinate checks", done, total)
                name = f"{placement}/width-{width}_blocks-{blocks}_seed-{seed}"
                piece = pieces.get(
                    name,
                    asked | {"seed": seed},
                    coordinates,
                    of,
                    corpus,
                    seed=seed,
                    rate=config.coordinate_lr,
                    after=config.coordinate_updates,
                )
                found.setdefault((placement, width, blocks), []).append(piece)
                done += 1
    return found


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
