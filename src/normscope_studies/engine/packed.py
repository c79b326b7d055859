"""Packs what the lists of claims read of the repository's results into the package: an installation
has no folder of results.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from normscope.limits.reading import read_json

from .listing import ListedClaim

PACKED = Path(__file__).parents[1] / "measured"
"""A folder for each study, as the repository's folder of results has it, with what lists read."""
_OF_A_CLAIM = ("name", "statement", "found", "verdict", "conditions")


def packed(results: Path, lists: Iterable[Sequence[ListedClaim]]) -> Iterator[tuple[Path, str]]:
    """Yields each file of the package's evidence with its text, read from a folder of results.

    Raises ValueError or OSError for results that cannot be read.
    """
    listed = [one for claims in lists for one in claims if one.study]
    for study in sorted({one.study for one in listed}):
        file = results / study / "results.json"
        if file.is_file():
            own = [one for one in listed if one.study == study]
            kept = json.dumps(_kept(read_json(file), own), ensure_ascii=False, indent=1)
            yield PACKED / study / "results.json", kept + "\n"


def _kept(data: Mapping[str, Any], listed: Sequence[ListedClaim]) -> dict[str, Any]:
    """Returns the parts of a study's results by which the claims of lists are told and judged."""
    names = {one.claim for one in listed}
    kept: dict[str, Any] = {key: data[key] for key in ("scale", "conditions") if key in data}
    kept["claims"] = []
    for claim in data["claims"]:
        if claim["name"] in names:
            kept["claims"].append({key: claim[key] for key in _OF_A_CLAIM})
    if any(one.least_bleu for one in listed):
        kept["configurations"] = [{"last_bleu": one["last_bleu"]} for one in data["configurations"]]
    return kept
