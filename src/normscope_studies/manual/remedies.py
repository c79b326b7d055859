"""The counts of the study of failed trainings, by which the doctor orders remedies, for the
package.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from normscope.errors import UserError
from normscope.history.remedies import Remedy, Situation

STUDY = "rescue"


def packed(results: Path) -> str:
    """Returns the package's `remedies.json`, from the study's committed result. Raises UserError
    without it.
    """
    file = results / STUDY / "results.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    table = dict(found["remedies"])
    table[str(Situation.MOVABLE)] = _where_moved(found["trainings"])
    return json.dumps(table, indent=1) + "\n"


def _where_moved(trainings: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Returns by remedy how many trainings it cured, and in how many it was tried, of those with a
    norm on every sum in which another placement was tried.

    A placement that was refused has no loss.
    """
    counts: dict[str, list[int]] = {}
    for one in trainings:
        moved = one["ended_nats"].get(str(Remedy.PLACEMENT)) is not None
        if not (moved and one["failed"] and one["situation"] == Situation.NORMED):
            continue
        for remedy in Remedy:
            if str(remedy) in one["cured"]:
                cured, tried = counts.get(str(remedy), [0, 0])
                counts[str(remedy)] = [cured + one["cured"][str(remedy)], tried + 1]
    return counts
