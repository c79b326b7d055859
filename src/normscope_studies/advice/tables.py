"""The tables and the data of the study of advice."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.doctor.advise.rule import Rule, to_table

from ..engine.page import StudyTable
from .cases.case import rate_of
from .fit import families
from .judge import Judged, Named
from .partial import Partly
from .search import nats
from .truth import Known
from .warmup import Warmup


def tables(
    known: Sequence[Known], judged: Sequence[Judged], warmups: Sequence[Warmup], early: Sequence[Partly]
) -> list[StudyTable]:
    """Families, how long one must look, deep decoders, failures, and warm-ups."""
    return [
        _families(judged),
        _early(early),
        _deep(judged),
        _failures(known, judged),
        of_warmups(warmups),
        of_cases(judged),
    ]


def _families(judged: Sequence[Judged]) -> StudyTable:
    rows: list[list[str | float | None]] = []
    for family in families([one.known for one in judged]):
        own = [one for one in judged if one.known.case.family == family]
        rows.append(
            [
                family,
                len(own),
                sum(one.instant.within(3) for one in own),
                sum(one.instant.stuck for one in own),
                sum(one.probe.within(2) for one in own),
                sum(one.probe.stuck for one in own),
                *(sum(named.within(2) for named in column) for column in _finders(own)),
            ]
        )
    names = list(judged[0].finders) if judged else []
    return StudyTable(
        title="By family, each judged by a rule that was fitted to the others",
        columns=[
            "family",
            "cases",
            "instant within 3",
            "instant stuck",
            "probe within 2",
            "probe stuck",
            *(f"{name} within 2" for name in names),
        ],
        rows=rows,
    )


def _early(early: Sequence[Partly]) -> StudyTable:
    return StudyTable(
        title="The best rate by the lowest training loss so far, of the trainings that it was found by",
        columns=["updates of each", "of a whole ladder", "cases", "within 2", "within 3"],
        rows=[[one.updates, one.ladder_updates, len(one.off), one.within(2), one.within(3)] for one in early],
    )


def _finders(own: Sequence[Judged]) -> list[list[Named]]:
    return [[one.finders[name] for one in own] for name in own[0].finders]


def _rate(named: float | None) -> float | None:
    return None if named is None else 10**named


def _deep(judged: Sequence[Judged]) -> StudyTable:
    rows: list[list[str | float | None]] = []
    for one in judged:
        case = one.known.case
        if (case.architecture, case.blocks) == ("decoder", 12):
            low, high = one.known.good
            rows.append(
                [
                    f"{case.placement}, {case.initialisation}",
                    10**one.known.best,
                    f"{10**low:.2g} to {10**high:.2g}",
                    _rate(one.instant.rate),
                    _rate(one.probe.rate),
                    _rate(one.known.stuck),
                ]
            )
    return StudyTable(
        title="Decoders of characters with 12 blocks of width 64, AdamW",
        columns=["model", "best rate", "good range", "instant advice", "probe", "stuck from"],
        rows=rows,
    )


def _failures(known: Sequence[Known], judged: Sequence[Judged]) -> StudyTable:
    rows: list[list[str | float | None]] = [
        [one.case.name, "learned at no rate that was tried", None, None, None, None] for one in known if not one.learned
    ]
    for one in judged:
        what = [
            *(["instant stuck"] if one.instant.stuck else []),
            *([] if one.instant.within(3) else ["instant beyond 3"]),
            *(["probe stuck"] if one.probe.stuck else []),
            *([] if one.probe.within(2) else ["probe beyond 2"]),
        ]
        if what:
            rows.append(
                [
                    one.known.case.name,
                    ", ".join(what),
                    10**one.known.best,
                    _rate(one.instant.rate),
                    _rate(one.probe.rate),
                    _rate(one.known.stuck),
                ]
            )
    return StudyTable(
        title="Where the advice failed",
        columns=["case", "what", "best rate", "instant", "probe", "stuck from"],
        rows=rows,
    )


def of_warmups(warmups: Sequence[Warmup]) -> StudyTable:
    """What short trainings say, beside whole ones."""
    return StudyTable(
        title="Warm-ups for the lowest rate that is stuck without one",
        columns=["case", "peak rate", "shortest, updates", "carried in short", "named, updates", "updates used"],
        rows=[
            [
                one.case.name,
                one.rate,
                one.shortest or "over the longest",
                one.tested or "none",
                one.named or "none",
                one.updates_used,
            ]
            for one in warmups
        ],
    )


def of_cases(judged: Sequence[Judged]) -> StudyTable:
    """What was named for each, beside what its trainings say."""
    return StudyTable(
        title="Every case that learned",
        columns=["case", "best rate", "good from", "good to", "instant", "probe", "stuck from"],
        rows=[
            [
                one.known.case.name,
                10**one.known.best,
                10 ** one.known.good[0],
                10 ** one.known.good[1],
                _rate(one.instant.rate),
                _rate(one.probe.rate),
                _rate(one.known.stuck),
            ]
            for one in judged
        ],
    )


def data(
    rule: Rule,
    known: Sequence[Known],
    judged: Sequence[Judged],
    warmups: Sequence[Warmup],
    early: Sequence[Partly],
) -> Mapping[str, Any]:
    """Everything that the page shows, and the constants that the package ships."""
    by_case = {one.known.case: one for one in judged}
    return {
        "rule": to_table(rule),
        "cases": {one.case.name: of_case(one, by_case.get(one.case)) for one in known},
        "early": [
            {"updates": one.updates, "cases": len(one.off), "within_2": one.within(2), "within_3": one.within(3)}
            | {"ladder_updates": one.ladder_updates}
            for one in early
        ],
        "warmups": [asdict(one) | {"case": one.case.name} for one in warmups],
    }


def of_case(known: Known, judged: Judged | None) -> dict[str, Any]:
    """What became of it, and what was named for it, as plain values."""
    low, high = known.good
    found: dict[str, Any] = {
        "family": known.case.family,
        "facts": asdict(known.facts),
        "unigram_nats": known.unigram_nats,
        "learned": known.learned,
        "best_rate": 10**known.best,
        "good_rates": [10**low, 10**high],
        "stuck_rate": _rate(known.stuck),
        "trainings": [{"rate": rate_of(step), "valid_nats": nats(outcome)} for step, outcome in known.outcomes.items()],
    }
    if judged is not None:
        found |= {
            "instant_rate": _rate(judged.instant.rate),
            "instant_interval": [10**end for end in judged.instant.interval or ()],
            "probe_rate": _rate(judged.probe.rate),
            "probe_interval": [10**end for end in judged.probe.interval or ()],
            "finders": {name: _rate(named.rate) for name, named in judged.finders.items()},
            "chances": [{"chance": chance, "stuck": stuck} for chance, stuck in judged.chances],
        }
    return found
