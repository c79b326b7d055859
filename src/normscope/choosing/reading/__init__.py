"""The evidence as the committed results have it: one file a kind of result."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...errors import UserError
from ...optim.optimizers import OPTIMIZERS
from ..evidence import BestRate, Evidence, EvidenceRow, EvidenceSetting
from . import advice, depth, grids, ladders, pretraining, transfer, translation

Found = EvidenceSetting | EvidenceRow | BestRate
Kept = TypeVar("Kept", EvidenceRow, BestRate)
READERS: Mapping[str, Callable[[str, Any], Iterable[Found]]] = {
    "optimizers": ladders.optimizers,
    "streams": ladders.streams,
    "streams_translation": ladders.streams,
    "transfer": transfer.transfer,
    "lr_sensitivity": grids.grid,
    "placements_cpu": grids.grid,
    "placements_cpu_newer": grids.grid,
    "multi30k_cpu": grids.grid,
    "figure2": translation.translation,
    "figure4": translation.translation,
    "figure5_cpu": pretraining.pretraining,
}
"""By folder of results/: what reads it. Results that are not here say nothing of a placement, a rate or a warm-up that
one could choose by."""


def collect(results: Path) -> Evidence:
    """What the results of a clone say. Raises UserError where one of them is not there."""
    found = [one for name, read in READERS.items() for one in read(name, _load(results, name))]
    depths = _load(results, "depth")
    return Evidence(
        settings={one.name: one for one in found if isinstance(one, EvidenceSetting)},
        # Figure 4 trains some of figure 2's runs again, word for word.
        findings=_once([one for one in found if isinstance(one, EvidenceRow)], "mean", "half_width", "note"),
        rates=_once([one for one in found if isinstance(one, BestRate)], "warmup_updates", "loss_nats"),
        depths=list(depth.depths(depths)),
        depth_blocks=depths["settings"]["blocks"],
        advice=list(advice.judged(_load(results, "advice"))),
        optimizers=list(OPTIMIZERS),
    )


def _load(results: Path, name: str) -> Any:
    file = results / name / "results.json"
    if not file.is_file():
        raise UserError(f"{file}: no such file; the manual's page is made in a clone, from its folder results/")
    return json.loads(file.read_text(encoding="utf-8"))


def _once(found: Sequence[Kept], *keys: str) -> list[Kept]:
    """The last of those that say the same of a placement and an optimiser: it is the one with the longer ladder."""

    def said(one: Kept) -> str:
        values: list[Any] = [getattr(one, key) for key in ("placement", "optimizer", *keys)]
        return repr([getattr(one, "question", ""), *values])

    last = {said(one): one for one in found}
    return [one for one in found if last[said(one)] is one]


__all__ = ["READERS", "collect"]
