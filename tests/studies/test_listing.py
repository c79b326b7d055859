"""What the list of a text's claims makes of the verdicts of studies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from normscope_studies.engine.listing import MeasuredBy, _row
from normscope_studies.paper import PAPER

CLAIMS, _ = PAPER.listed()


def judged(one: dict[str, Any], data: dict[str, Any], verdict: str) -> tuple[str, str]:
    """The verdict on a claim of the list whose study says `verdict`, and where it holds."""
    claim = {"name": "C", "statement": "s", "found": "f", "verdict": verdict, "conditions": ""}
    fields = {"tested": "", "part": "", "least_bleu": 0.0, "claim": "C"} | one
    claimed = replace(CLAIMS[0], **fields)
    row = _row(
        claimed,
        MeasuredBy(command="c", conditions=[]),
        {"conditions": {}, "claims": [claim], **data},
        Path("results"),
    )
    return row.verdict_words, row.where


@pytest.mark.parametrize("verdict", ["reproduced", "contradicted", "undecided"])
def test_numbers_of_bleu_are_not_judged_by_trainings_that_do_not_translate(verdict: str) -> None:
    configurations = [{"last_bleu": [8.0, 9.0]}, {"last_bleu": [2.0, 4.0]}]
    small = judged({"least_bleu": 25.0}, {"configurations": configurations}, verdict)
    assert small == ("too small to tell", "BLEU 8.5 at the best, 25 asked for")
    large = [*configurations, {"last_bleu": [26.0, 24.0]}]
    assert judged({"least_bleu": 25.0}, {"configurations": large}, verdict) == (verdict, "")


def test_a_claim_of_which_a_part_was_tested_is_reproduced_in_part() -> None:
    part = {"part": "one direction"}
    assert judged(part, {}, "reproduced") == ("reproduced in part", "one direction")
    assert judged(part, {}, "contradicted") == ("contradicted", "")
    assert judged(part, {}, "undecided") == ("undecided", "")
    assert judged({}, {}, "reproduced") == ("reproduced", "")


def test_a_trial_decides_nothing() -> None:
    assert judged({}, {"scale": "smoke"}, "reproduced") == (
        "too small to tell",
        "scale smoke",
    )
