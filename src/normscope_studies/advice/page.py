"""Pictures, tables and data of the study of advice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from normscope.doctor.advise.rule import RateRule, to_table
from normscope.report.chart import Panel, Series

from ..engine.page import StudyFigure, StudyTable
from .cases import rate_of
from .fit import families
from .judge import Judgement, NamedRate, PartialLadder
from .ladder import TrainedCase, nats
from .measuring import Warmup


def tables(
    known: Sequence[TrainedCase], judged: Sequence[Judgement], warmups: Sequence[Warmup], early: Sequence[PartialLadder]
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


def _families(judged: Sequence[Judgement]) -> StudyTable:
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


def _early(early: Sequence[PartialLadder]) -> StudyTable:
    return StudyTable(
        title="The best rate by the lowest training loss so far, of the trainings that it was found by",
        columns=["updates of each", "of a whole ladder", "cases", "within 2", "within 3"],
        rows=[[one.updates, one.ladder_updates, len(one.off), one.within(2), one.within(3)] for one in early],
    )


def _finders(own: Sequence[Judgement]) -> list[list[NamedRate]]:
    return [[one.finders[name] for one in own] for name in own[0].finders]


def _rate(named: float | None) -> float | None:
    return None if named is None else 10**named


def _deep(judged: Sequence[Judgement]) -> StudyTable:
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


def _failures(known: Sequence[TrainedCase], judged: Sequence[Judgement]) -> StudyTable:
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


def of_cases(judged: Sequence[Judgement]) -> StudyTable:
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
    rule: RateRule,
    known: Sequence[TrainedCase],
    judged: Sequence[Judgement],
    warmups: Sequence[Warmup],
    early: Sequence[PartialLadder],
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


def of_case(known: TrainedCase, judged: Judgement | None) -> dict[str, Any]:
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


_BINS = 5


def figures(judged: Sequence[Judgement]) -> list[StudyFigure]:
    """Best rates and chances to be stuck, each foreseen and found."""
    return [_rates(judged), _chances(judged)]


def _rates(judged: Sequence[Judgement]) -> StudyFigure:
    found = [one.known.best for one in judged]
    asked: dict[str, Callable[[Judgement], NamedRate]] = {
        "Instant advice": lambda one: one.instant,
        "Probe": lambda one: one.probe,
    }
    for name in judged[0].finders:
        asked[name] = lambda one, name=name: one.finders[name]  # type: ignore[misc]
    ends = (min(found) - 0.3, max(found) + 0.3)
    title = "The best rate: named without a long training, and found by trainings"
    panels = [
        Panel(
            title=name,
            xlabel="named, log10 of the rate",
            ylabel="best, log10 of the rate",
            series=[
                Series(label="named = best", kind="claimed", hue=-1, x=ends, y=ends),
                *(
                    _points(optimizer, hue, [(one, of(one)) for one in judged if one.known.case.optimizer == optimizer])
                    for hue, optimizer in enumerate(sorted({one.known.case.optimizer for one in judged}))
                ),
            ],
        )
        for name, of in asked.items()
    ]
    return StudyFigure.of_panels(
        name="rates",
        title=title,
        caption="A point a case, judged by constants that were fitted without its family. Range tests have as many "
        "updates as probes.",
        panels=panels,
        told=title,
        wide=True,
    )


def _points(label: str, hue: int, pairs: Sequence[tuple[Judgement, NamedRate]]) -> Series:
    seen = [(named.rate, one.known.best) for one, named in pairs if named.rate is not None]
    return Series(label=label, kind="points", hue=hue, x=[x for x, _ in seen], y=[y for _, y in seen])


def _chances(judged: Sequence[Judgement]) -> StudyFigure:
    runs = sorted(pair for one in judged for pair in one.chances)
    edges = np.linspace(0, 1, _BINS + 1)
    bins = [
        [(chance, bad) for chance, bad in runs if low <= chance and (chance < high or high == 1)]
        for low, high in pairwise(edges)
    ]
    filled = [some for some in bins if some]
    title = "The chance to be stuck: foreseen, and how many were"
    panel = Panel(
        title=title,
        xlabel="foreseen chance",
        ylabel="share that was stuck",
        series=[
            Series(label="foreseen = found", kind="claimed", hue=-1, x=(0.0, 1.0), y=(0.0, 1.0)),
            Series(
                label="trainings, in five bins",
                kind="points",
                hue=1,
                x=[float(np.mean([chance for chance, _ in some])) for some in filled],
                y=[float(np.mean([bad for _, bad in some])) for some in filled],
            ),
        ],
    )
    return StudyFigure.of_panels(
        name="chances",
        title=title,
        caption="Trainings at and above the best rate of each case, by constants fitted without its family.",
        panels=[panel],
        told=title,
    )
