"""The numbers under the pictures of the study of advice, and its data."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...doctor.advise.calibration import Calibration, to_table
from ...report.study.contents import StudyTable
from .cases import rate_of
from .claims import with_a_rate
from .fit import Known
from .judge import FACTOR, Judged, separation
from .search import learned
from .warmup import Warmup, rule


def tables(evaluation: Sequence[Judged], warmups: Sequence[Warmup], constants: Calibration) -> list[StudyTable]:
    """Every case, those where the advice failed, and the warm-ups."""
    return [_cases_table(evaluation), _failures_table(evaluation), _warmup_table(warmups, constants)]


def data(
    constants: Calibration, calibration: Sequence[Known], evaluation: Sequence[Judged], warmups: Sequence[Warmup]
) -> dict[str, Any]:
    """For results.json."""
    area, bad, good = separation(evaluation)
    trainings = sum(len(one.known.outcomes) for one in evaluation)
    return {
        "calibration": to_table(constants),
        "evaluation": {
            "trainings": trainings,
            "diverged": bad,
            "learned": good,
            "undecided": trainings - bad - good,
            "area_under_curve": area,
            "cases": len(evaluation),
            "cases_with_a_rate": len(with_a_rate(evaluation)),
            "safe_trained": sum(one.safe_trained for one in evaluation),
            "within_factor": sum(one.within_factor for one in evaluation),
            "both": sum(one.safe_trained and one.within_factor for one in evaluation),
        },
        "cases": {one.known.case.name: _case_data(one) for one in evaluation},
        "calibration_cases": {one.case.name: _known_data(one, constants) for one in calibration},
        "warmups": [asdict(one) for one in warmups],
        "warmup_rule": rule(constants),
    }


def _cases_table(evaluation: Sequence[Judged]) -> StudyTable:
    return StudyTable(
        title="Every case of the evaluation",
        columns=[
            "case",
            "predicted limit",
            "safe rate",
            "held-out loss there, nats",
            "unigram baseline, nats",
            "largest that learned",
            "largest / safe",
        ],
        rows=[
            [
                one.known.case.name,
                one.foreseen,
                one.safe_rate,
                one.safe["valid_nats"],
                one.safe["unigram_nats"],
                one.largest_rate,
                one.times_below,
            ]
            for one in evaluation
        ],
    )


def _failures_table(evaluation: Sequence[Judged]) -> StudyTable:
    rows: list[list[str | float | None]] = []
    for one in evaluation:
        if one.largest_rate is None:
            rows.append([one.known.case.name, "learned at no rate that was tried", one.safe_rate, None])
        elif not one.safe_trained:
            rows.append([one.known.case.name, "the safe rate did not learn", one.safe_rate, one.largest_rate])
        elif not one.within_factor:
            rows.append([one.known.case.name, f"more than {FACTOR:g} times too low", one.safe_rate, one.largest_rate])
    return StudyTable(
        title="Where the advice failed", columns=["case", "what", "safe rate", "largest that learned"], rows=rows
    )


def _warmup_table(warmups: Sequence[Warmup], constants: Calibration) -> StudyTable:
    return StudyTable(
        title=f"Shortest warm-up; fitted: {rule(constants)}",
        columns=["case", "peak rate", "decades beyond", "shortest warm-up, updates"],
        rows=[
            [one.name, one.rate, one.beyond, "longer than tried" if one.shortest is None else one.shortest]
            for one in warmups
        ],
    )


def _case_data(one: Judged) -> dict[str, Any]:
    return {
        "foreseen_rate": one.foreseen,
        "safe_rate": one.safe_rate,
        "safe_valid_nats": one.safe["valid_nats"],
        "unigram_nats": one.safe["unigram_nats"],
        "largest_rate": one.largest_rate,
        "times_below": one.times_below,
        "trainings": _trainings(one.known, one.chances),
    }


def _known_data(one: Known, constants: Calibration) -> dict[str, Any]:
    return {
        "facts": asdict(one.facts),
        "foreseen_rate": 10 ** constants.foreseen(one.facts),
        "largest_rate": None if one.largest is None else rate_of(one.largest),
        "trainings": _trainings(one, {}),
    }


def _trainings(known: Known, chances: Any) -> list[dict[str, Any]]:
    labels = known.labels()
    return [
        {
            "rate": rate_of(step),
            "valid_nats": outcome["valid_nats"],
            "learned": learned(outcome),
            "diverged": labels.get(step),
            **({"chance": chances[step]} if step in chances else {}),
        }
        for step, outcome in known.outcomes.items()
    ]
