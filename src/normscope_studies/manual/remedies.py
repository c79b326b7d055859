"""What the doctor says of remedies: counts of the study of failed trainings, for the package."""

import json
from pathlib import Path

from normscope.errors import UserError

STUDY = "rescue"


def packed(results: Path) -> str:
    """The package's `remedies.json`, from the study's committed result. Raises UserError without
    it.
    """
    file = results / STUDY / "results.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return json.dumps(found["remedies"], indent=1) + "\n"
