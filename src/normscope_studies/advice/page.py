"""Pictures, tables and data of the study of advice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from normscope.doctor.advise.rule import ProbeRule
from normscope.report.chart import Panel

from ..engine.figures import line, scatter
from ..engine.page import StudyFigure, StudyTable, table
from .cases import rate_of
from .fit import Judgement, PartialLadder
from .ladder import TrainedCase, nats
from .measuring import Warmup


def tables(
    known: Sequence[TrainedCase], judged: Sequence[Judgement], warmups: Sequence[Warmup], early: Sequence[PartialLadder]
) -> list[StudyTable]:
    """Families, how long one must look, deep decoders, failures, and warm-ups."""
    deep = [one for one in judged if (one.known.case.architecture, one.known.case.blocks) == ("decoder", 12)]
    return [
        _families(judged),
        table(
            "The best rate by the lowest training loss so far, of the trainings that it was found by",
            early,
            [
                ("updates of each", lambda one: one.updates),
                ("of a whole ladder", lambda one: one.ladder_updates),
                ("cases", lambda one: len(one.off)),
                ("within 2", lambda one: one.within(2)),
                ("within 3", lambda one: one.within(3)),
            ],
        ),
        table(
            "Decoders of characters with 12 blocks of width 64, AdamW",
            deep,
            [
                ("model", lambda one: f"{one.known.case.placement}, {one.known.case.initialisation}"),
                _BEST,
                ("good range", lambda one: " to ".join(f"{10**end:.2g}" for end in one.known.good)),
                *_NAMED,
            ],
        ),
        _failures(known, judged),
        of_warmups(warmups),
        of_cases(judged),
    ]


def as_rate(decades: float | None) -> float | None:
    """The rate of a log10; None where there is none."""
    return None if decades is None else 10**decades


_BEST: tuple[str, Callable[[Judgement], float]] = ("best rate", lambda one: 10**one.known.best)
_NAMED: Sequence[tuple[str, Callable[[Judgement], float | None]]] = (
    ("known rates", lambda one: as_rate(one.usual.rate)),
    ("probe", lambda one: as_rate(one.probe.rate)),
    ("stuck from", lambda one: as_rate(one.known.stuck)),
)


def _families(judged: Sequence[Judgement]) -> StudyTable:
    by_family: dict[str, list[Judgement]] = {}
    for one in judged:
        by_family.setdefault(one.known.case.family, []).append(one)
    return table(
        "By family, each judged by a rule that was fitted to the others",
        by_family.values(),
        [
            ("family", lambda own: own[0].known.case.family),
            ("cases", len),
            ("known rates within 3", lambda own: sum(one.usual.within(3) for one in own)),
            ("known rates stuck", lambda own: sum(one.usual.stuck for one in own)),
            ("probe within 2", lambda own: sum(one.probe.within(2) for one in own)),
            ("probe stuck", lambda own: sum(one.probe.stuck for one in own)),
            *((f"{name} within 2", partial(_found_by, name)) for name in (judged[0].finders if judged else ())),
        ],
    )


def _found_by(name: str, own: Sequence[Judgement]) -> int:
    return sum(one.finders[name].within(2) for one in own)


def _failures(known: Sequence[TrainedCase], judged: Sequence[Judgement]) -> StudyTable:
    failed = {one.known.case.name: _failed(one) for one in judged}
    made = table(
        "Where the advice failed",
        [one for one in judged if failed[one.known.case.name]],
        [("case", lambda one: one.known.case.name), ("what", lambda one: failed[one.known.case.name]), _BEST, *_NAMED],
    )
    unlearned = [one.case.name for one in known if not one.learned]
    nothing = [[name, "learned at no rate that was tried", *[None] * 4] for name in unlearned]
    return replace(made, rows=[*nothing, *made.rows])


def _failed(one: Judgement) -> str:
    """What failed, in words; empty where nothing did."""
    failures = {
        "known rates stuck": one.usual.stuck,
        "known rates beyond 3": not one.usual.within(3),
        "probe stuck": one.probe.stuck,
        "probe beyond 2": not one.probe.within(2),
    }
    return ", ".join(what for what, failed in failures.items() if failed)


def of_warmups(warmups: Sequence[Warmup]) -> StudyTable:
    """What short trainings say, beside whole ones."""
    return table(
        "Warm-ups for the lowest rate that is stuck without one",
        warmups,
        [
            ("case", lambda one: one.case.name),
            ("peak rate", lambda one: one.rate),
            ("shortest, updates", lambda one: one.shortest or "over the longest"),
            ("carried in short", lambda one: one.tested or "none"),
            ("named, updates", lambda one: one.named or "none"),
            ("updates used", lambda one: one.updates_used),
        ],
    )


def of_cases(judged: Sequence[Judgement]) -> StudyTable:
    """What was named for each, beside what its trainings say."""
    return table(
        "Every case that learned",
        judged,
        [
            ("case", lambda one: one.known.case.name),
            _BEST,
            ("good from", lambda one: 10 ** one.known.good[0]),
            ("good to", lambda one: 10 ** one.known.good[1]),
            *_NAMED,
        ],
    )


def data(
    rule: ProbeRule,
    known: Sequence[TrainedCase],
    judged: Sequence[Judgement],
    warmups: Sequence[Warmup],
    early: Sequence[PartialLadder],
) -> Mapping[str, Any]:
    """Everything that the page shows, and the constants that the package ships."""
    by_case = {one.known.case: one for one in judged}
    return {
        "rule": asdict(rule),
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
        "stuck_rate": as_rate(known.stuck),
        "trainings": [{"rate": rate_of(step), "valid_nats": nats(outcome)} for step, outcome in known.outcomes.items()],
    }
    if judged is not None:
        found |= {
            "usual_rate": as_rate(judged.usual.rate),
            "probe_rate": as_rate(judged.probe.rate),
            "probe_interval": [10**end for end in judged.probe.interval or ()],
            "finders": {name: as_rate(named.rate) for name, named in judged.finders.items()},
        }
    return found


def figures(judged: Sequence[Judgement]) -> list[StudyFigure]:
    """Best rates, named and found."""
    return [
        StudyFigure.of_panels(
            name="rates",
            title="The best rate: named without a long training, and found by trainings",
            caption="A point a case, judged by constants that were fitted without its family. Range tests have as many "
            "updates as probes.",
            panels=_rates(judged),
            wide=True,
        ),
    ]


def _rates(judged: Sequence[Judgement]) -> list[Panel]:
    """A panel for each way of asking, a hue for each optimiser."""
    found = [one.known.best for one in judged]
    ends = (min(found) - 0.3, max(found) + 0.3)
    ways: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for one in sorted(judged, key=lambda one: one.known.case.optimizer):
        for way, named in {"Known rates": one.usual, "Probe": one.probe, **one.finders}.items():
            points = ways.setdefault(way, {}).setdefault(one.known.case.optimizer, [])
            points += [] if named.rate is None else [(named.rate, one.known.best)]
    return [
        scatter(
            way,
            points,
            xlabel="named, log10 of the rate",
            ylabel="best, log10 of the rate",
            beside=[line("named = best", "claimed", -1, ends, ends)],
        )
        for way, points in ways.items()
    ]
