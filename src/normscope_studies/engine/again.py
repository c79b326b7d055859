"""Results judged anew: the claims that today's rules make of the numbers in a results.json.

    python -m normscope_studies.engine.again results/figure4 …

Nothing is measured, and numbers that are there stay as they are; `judged` says which source judged.
"""

import dataclasses
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normscope.errors import UserError
from normscope.files import disk_errors, write_over
from normscope.limits.kinds import RESULTS
from normscope.limits.reading import read_json
from normscope.provenance import provenance
from normscope.settings.tables import as_table
from normscope.settings.validation import validated

from .discovery import studies
from .pieces import as_json
from .study import PACKAGE, JudgedAgain, Study


def judged_again(data: Mapping[str, Any], folder: Path) -> JudgedAgain:
    """Returns the claims of the study that the results are of, made of the numbers in `data`.

    folder: where these lie, for what is said of them. Raises UserError for results of no study, and
    of one that does not keep all that it measures in its data.
    """
    study = _study_of(data, folder)
    if study.judged_again is None:
        raise UserError(
            f"{folder}: its data do not hold all that was measured; make them again: "
            f"{'; '.join(data['commands'])}"
        )
    # Settings that came later are what all had before.
    table = as_table(study.scales["cpu"]) | dict(data["settings"])
    return study.judged_again(validated(type(study.scales["cpu"]), table), data)


def judge_again(folder: Path) -> list[str]:
    """Writes the claims of a folder's results.json anew, and returns a line for each whose verdict
    or words changed.
    """
    file = folder / "results.json"
    if not file.is_file():
        raise UserError(f"no results.json in {folder}: name a folder of a study's results")
    data = read_json(file)
    found = judged_again(data, folder)
    claims = [dataclasses.asdict(claim) for claim in found.claims]
    before = {claim["name"]: claim for claim in data["claims"]}
    made_by = {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **provenance(PACKAGE)}
    judged = {**data, "claims": claims, "judged": made_by}
    judged |= {key: value for key, value in found.data.items() if key not in data}
    with disk_errors(f"writing {file}"):
        write_over(file, as_json(judged), RESULTS)
    changed = [claim for claim in claims if before.get(claim["name"]) != claim]
    return [f"{folder}: {claim['name']}: {claim['verdict']}" for claim in changed]


def _study_of(data: Mapping[str, Any], folder: Path) -> Study:
    """Returns the study with the title of the data."""
    for listed in studies().values():
        if listed.title == data.get("title"):
            study: Study = listed.load()
            return study
    raise UserError(f"{folder}: no study is called {data.get('title')!r}")


if __name__ == "__main__":
    try:
        for _name in sys.argv[1:]:
            print(*judge_again(Path(_name)), sep="\n")
    except UserError as error:
        sys.exit(f"error: {error}")
