"""Pictures, tables and data of the study of advice."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.report.chart import Panel

from ..engine.figures import line, scatter
from ..engine.page import StudyFigure, StudyTable, table
from .cases import AdviceCase, rate_of
from .ladder import Ladder
from .rules import WAYS, Looked, Moved, Named, NamedRate, quantile_of

Warmups = Mapping[AdviceCase, Mapping[float, float]]
"""By case, then by the warm-up's share of the updates: the loss at the end, at the best rung."""
Ladders = Mapping[AdviceCase, Sequence[Ladder]]
"""By case, of each horizon."""


def lost_by_usual_warmup(one: Looked, warmups: Mapping[float, float]) -> float:
    """As a share of the best's gain, against the best of the warm-ups that were tried."""
    usual = warmups.get(one.case.usual_warmup_share, one.ladder.lowest_nats)
    return max(0.0, usual - min(warmups.values())) / one.ladder.gain


def tables(
    ladders: Ladders, named: Named, moved: Sequence[Moved], looked: Sequence[Looked], warmups: Warmups
) -> list[StudyTable]:
    """Rules side by side, by family, horizons, warm-ups, and every case."""
    return [
        table(
            "What a training at the named rate loses, each rule by constants of cases that share nothing with it",
            [way for way in WAYS if way in named],
            [
                ("rule", lambda way: way),
                ("cases", lambda way: len(named[way])),
                ("median, nats", lambda way: quantile_of(named[way], lambda one: one.lost_nats, 0.5)),
                ("90th percentile, nats", lambda way: quantile_of(named[way], lambda one: one.lost_nats, 0.9)),
                ("median, % of the gain", lambda way: 100 * quantile_of(named[way], lambda one: one.regret, 0.5)),
                ("90th percentile, %", lambda way: 100 * quantile_of(named[way], lambda one: one.regret, 0.9)),
                ("at most 1 %", lambda way: sum(one.regret <= 0.01 for one in named[way])),
                ("at most 2 %", lambda way: sum(one.regret <= 0.02 for one in named[way])),
                ("stuck", lambda way: sum(one.stuck for one in named[way])),
                ("within 2", lambda way: sum(one.within(2) for one in named[way])),
            ],
        ),
        table(
            "The best rate by the length of the training",
            moved,
            [
                ("case", lambda one: one.case.name),
                ("updates", lambda one: one.longer.updates),
                ("best rate", lambda one: 10**one.longer.best),
                ("of the shortest", lambda one: 10**one.shortest.best),
                ("moved by", lambda one: 10**one.found),
                ("foretold", lambda one: 10**one.foretold),
            ],
        ),
        table(
            "What warm-ups lose at the best rate, in % of the gain",
            looked,
            [
                ("case", lambda one: one.case.name),
                ("usual, % of the updates", lambda one: 100 * one.case.usual_warmup_share),
                ("best, %", lambda one: 100 * min(warmups[one.case], key=warmups[one.case].__getitem__)),
                ("lost by the usual", lambda one: 100 * lost_by_usual_warmup(one, warmups[one.case])),
            ],
        ),
        _of_cases(ladders, named),
    ]


def _of_cases(ladders: Ladders, named: Named) -> StudyTable:
    """What was named for each, beside what its trainings say."""
    by_case: dict[AdviceCase, dict[str, NamedRate]] = {}
    for way, several in named.items():
        for one in several:
            by_case.setdefault(one.looked.case, {})[way] = one
    ways = [way for way in WAYS if way in named]
    return table(
        "Every case: the best rate, and what each rule loses, in % of the gain",
        [several[0] for several in ladders.values()],
        [
            ("case", lambda one: one.case.name),
            ("best rate", lambda one: 10**one.best if one.learned else None),
            ("gain, nats", lambda one: one.gain if one.learned else None),
            *((way, _lost(by_case, way)) for way in ways),
        ],
    )


def _lost(by_case: Mapping[AdviceCase, Mapping[str, NamedRate]], way: str) -> Any:
    def cell(one: Ladder) -> float | None:
        found = by_case.get(one.case, {}).get(way)
        return None if found is None else 100 * found.regret

    return cell


def figures(named: Named, moved: Sequence[Moved]) -> list[StudyFigure]:
    """Best rates, named and found, and how they move with the length of the training."""
    return [
        StudyFigure.of_panels(
            name="rates",
            title="The best rate: named, and found by trainings",
            caption="A point a case, judged by constants of cases that share neither model nor text nor initial "
            "weights with it.",
            panels=[_scatter(way, named[way]) for way in WAYS if way in named],
            wide=True,
        ),
        StudyFigure.of_panels(
            name="horizons",
            title="How far the best rate moves with the length of the training",
            caption="A point a case and horizon: the best rate over that of its shortest trainings.",
            panels=[
                scatter(
                    "moved from the shortest",
                    _by(moved, lambda one: one.case.optimizer, lambda one: (float(one.longer.updates), 10**one.found)),
                    xlabel="updates",
                    ylabel="best rate over the shortest's",
                    log_x=True,
                    log_y=True,
                )
            ],
        ),
    ]


def _scatter(way: str, named: Sequence[NamedRate]) -> Panel:
    """A hue for each optimiser."""
    found = [one.looked.ladder.best for one in named]
    ends = (min(found) - 0.3, max(found) + 0.3)
    return scatter(
        way,
        _by(named, lambda one: one.looked.case.optimizer, lambda one: (one.rate, one.looked.ladder.best)),
        xlabel="named, log10 of the rate",
        ylabel="best, log10 of the rate",
        beside=[line("named = best", "claimed", -1, ends, ends)],
    )


def _by(several: Sequence[Any], label: Any, point: Any) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for one in sorted(several, key=label):
        found.setdefault(label(one), []).append(point(one))
    return found


def data(
    ladders: Ladders, named: Named, moved: Sequence[Moved], looked: Sequence[Looked], warmups: Warmups
) -> dict[str, Any]:
    """Everything that the page shows."""
    facts = {one.case: asdict(one.facts) | {"parameters": one.parameters} for one in looked}
    return {
        "cases": {
            case.name: {
                "family": case.family,
                "facts": facts.get(case),
                "ladders": [_of_ladder(one) for one in several],
                "named": {
                    way: {"rate": 10**one.rate, "nats": one.nats, "regret": one.regret}
                    for way, all_of in named.items()
                    for one in all_of
                    if one.looked.case == case
                },
                "warmups": [{"share": share, "nats": nats} for share, nats in warmups.get(case, {}).items()],
            }
            for case, several in ladders.items()
        },
        "moves": [
            {"case": one.case.name, "updates": one.longer.updates, "found": one.found, "foretold": one.foretold}
            for one in moved
        ],
    }


def _of_ladder(one: Ladder) -> dict[str, Any]:
    return {
        "updates": one.updates,
        "unigram_nats": one.unigram_nats,
        "bigram_nats": one.bigram_nats,
        "learned": one.learned,
        "best_rate": 10**one.best,
        "lowest_nats": one.lowest_nats,
        "trainings": [{"rate": rate_of(step), "nats": one.nats(step)} for step in one.outcomes],
    }
