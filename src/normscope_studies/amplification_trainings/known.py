"""Trainings that the study of advice has made, from its results."""

import json
import math
from pathlib import Path
from typing import Any

from normscope.doctor.advise.facts import Facts
from normscope.errors import UserError

from ..advice.cases.case import Case, rate_of
from ..advice.truth import Known


def known_in(file: Path) -> list[Known]:
    """Raises UserError for a file that is not there, or that holds something else."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{file}: {error.strerror or error}; --set known=FILE names the results.json of `normscope study advice`"
        ) from None
    try:
        table = json.loads(text)
        return [_known(Case(**case), table["cases"]) for case in table["settings"]["cases"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} is not a results.json of `normscope study advice` ({type(error).__name__}: {error}); name one by "
            "--set known=FILE"
        ) from None


def _known(case: Case, tables: dict[str, Any]) -> Known:
    table = tables[case.name]
    return Known(
        case=case,
        facts=Facts(**table["facts"]),
        outcomes={
            _step_of(one["rate"]): {"valid_nats": one["valid_nats"], "unigram_nats": table["unigram_nats"]}
            for one in table["trainings"]
        },
    )


def _step_of(rate: float) -> int:
    step = round(math.log2(rate / rate_of(0)))
    if not math.isclose(rate, rate_of(step), rel_tol=1e-6):
        raise ValueError(f"{rate} is no rung of the ladder")
    return step
