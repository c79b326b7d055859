"""All stacks of the study, each measured once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.placement import named
from normscope.placement.printing import formula

from ..engine.pieces import Pieces
from .config import SMALL_RATES, AmplificationConfig
from .measure import changes

Found = Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]
"""By placement and blocks, of each seed what `measure.changes` gives."""


def measured(config: AmplificationConfig, pieces: Pieces) -> Found:
    """One piece a placement, depth and seed."""
    sizes = [(placement, blocks) for placement in config.placements for blocks in config.depths]
    found: dict[tuple[str, int], list[dict[str, Any]]] = {size: [] for size in sizes}
    done = 0
    for seed in range(1, config.seeds + 1):
        for placement, blocks in sizes:
            pieces.watch("stacks", done, len(sizes) * config.seeds)
            model = config.model(blocks)
            alone_of = config.alone_of if blocks == config.alone_blocks else ()
            asked = {
                "formula": formula(named(placement), model.shape("encoder")),
                "model": asdict(model),
                "small_rates": {kind: SMALL_RATES[kind] for kind in config.updates},
                "alone_of": alone_of,
                "seed": seed,
            }
            name = f"{placement}/blocks-{blocks}_seed-{seed}"
            piece = pieces.get(name, asked, changes, placement, model, config.updates, alone_of, seed)
            found[placement, blocks].append(piece)
            done += 1
    pieces.watch("stacks", done, done)
    return found
