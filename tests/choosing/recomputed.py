"""Numbers of the evidence, computed from the results in another way than the package's."""

import json
import math
import statistics
from functools import cache
from pathlib import Path
from typing import Any

from normscope.choosing.evidence import EvidenceRow, stored

RESULTS = Path(__file__).parents[2] / "results"
T_95 = {1: math.tan(0.475 * math.pi), 2: math.sqrt(2) * 0.95 / math.sqrt(1 - 0.95**2)}
"""Student's quantiles, which are closed forms for one and two degrees of freedom."""


@cache
def result(name: str) -> Any:
    return json.loads((RESULTS / name / "results.json").read_text(encoding="utf-8"))


def at(data: Any, pointer: str) -> Any:
    """What stands there; * stands for every entry of a list."""
    parts = pointer.removeprefix("/").split("/")
    for place, part in enumerate(parts):
        if part == "*":
            return [at(one, "/".join(parts[place + 1 :])) for one in data]
        data = data[int(part)] if isinstance(data, list) else data[part]
    return data


def recomputed(finding: EvidenceRow) -> tuple[float, float | None, int]:
    """Mean, half width and number of seeds, from the places that the finding names."""
    found = [
        at(result(stored().settings[finding.setting].result), pointer) for pointer in finding.source
    ]
    if len(found) == 1:
        return found[0]["mean"], found[0]["half_width"], found[0]["seeds"]
    pairs = [a - b for a, b in zip(*found, strict=True)]
    if len(pairs) == 1:
        return pairs[0], None, 1
    half_width = T_95[len(pairs) - 1] * statistics.stdev(pairs) / math.sqrt(len(pairs))
    return statistics.mean(pairs), half_width, len(pairs)
