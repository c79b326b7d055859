"""Pictures, tables and data of the study of advice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.report.chart import Panel

from ..engine.figures import line, measured, scatter
from ..engine.page import StudyFigure, StudyTable, table
from .cases import AdviceCase, rate_of
from .ladder import Ladder
from .rules import NAIVE, OFF, WAYS, Looked, Moved, Named, NamedRate, less_than, off_by, quantile_of

Warmups = Mapping[AdviceCase, Mapping[float, float]]
"""By case, then by the warm-up's share of the updates: the loss at the end, at the best rung."""
Ladders = Mapping[AdviceCase, Sequence[Ladder]]
"""By case, of each horizon."""
Looks = Mapping[str, Mapping[int, Sequence[NamedRate]]]
"""By what was tried and the updates after which it was compared."""


def lost_by_usual_warmup(one: Looked, warmups: Mapping[float, float]) -> float:
    """As a share of the best's gain, against the best of the warm-ups that were tried."""
    usual = warmups.get(one.case.usual_warmup_share, one.ladder.lowest_nats)
    return max(0.0, usual - min(warmups.values())) / one.ladder.gain


NORMED = {"residual sums are normed": True, "residual sums are not normed": False}


def by_warmup(looked: Sequence[Looked], warmups: Warmups) -> dict[tuple[str, float], list[NamedRate]]:
    """Trainings at the best rung, against the best of the warm-ups that were tried: by whether sums are normed, and by
    the warm-up's share of the updates, rising."""
    shares = sorted({share for own in warmups.values() for share in own})
    found: dict[tuple[str, float], list[NamedRate]] = {}
    for group, normed in NORMED.items():
        there = [one for one in looked if (one.facts.normed_sums > 0.5) == normed]
        for share in shares:
            found[group, share] = [
                NamedRate(looked=one, rate=None, nats=one.ladder.lowest_nats + own[share] - min(own.values()))
                for one in there
                for own in [warmups[one.case]]
            ]
    return found


def tables(
    ladders: Ladders, named: Named, looks: Looks, moved: Sequence[Moved], looked: Sequence[Looked], warmups: Warmups
) -> list[StudyTable]:
    """Rules side by side, looks, horizons, warm-ups, and every case."""
    tried = [(rungs, off_by(looked, rungs)) for rungs in OFF]
    return [
        table(
            "What a training at the named rate loses, each rule by constants of cases that share nothing with it",
            [(way, named[way]) for way in WAYS if way in named],
            [
                ("rule", lambda row: row[0]),
                ("cases", _count),
                ("median, nats", lambda row: quantile_of(row[-1], lambda one: one.lost_nats, 0.5)),
                ("90th percentile, nats", lambda row: quantile_of(row[-1], lambda one: one.lost_nats, 0.9)),
                ("median, % of the gain", _percentile(0.5)),
                ("90th percentile, %", _percentile(0.9)),
                ("at most 1 %", _at_most(0.01)),
                ("at most 2 %", _at_most(0.02)),
                ("stuck", _stuck),
                ("within 2", lambda row: sum(one.within(2) for one in row[-1])),
                ("mean beside the median's, %", lambda row: 100 * float(less_than(row[-1], named[NAIVE]).mean)),
            ],
        ),
        table(
            "What a wrong rate costs, in % of the best's gain",
            [row for row in tried if row[-1]],
            [
                ("times the best rate", lambda row: 2.0 ** row[0]),
                ("cases", _count),
                ("median", _percentile(0.5)),
                ("90th percentile", _percentile(0.9)),
                ("stuck", _stuck),
            ],
        ),
        table(
            "How long one must look: trainings compared after so many updates, of which the best goes on",
            [
                (words, updates, less_than(own, named[NAIVE]), own)
                for words, by_updates in looks.items()
                for updates, own in by_updates.items()
            ],
            [
                ("tried", lambda row: row[0]),
                ("after updates", lambda row: row[1]),
                ("cases", _count),
                ("median, % of the gain", _percentile(0.5)),
                ("90th percentile, %", _percentile(0.9)),
                ("at most 1 %", _at_most(0.01)),
                ("stuck", _stuck),
                ("mean beside the median's, %", lambda row: 100 * float(row[2].mean)),
                ("± %", lambda row: 100 * float(row[2].half_width)),
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
                ("lost at the shortest's, %", lambda one: 100 * one.lost),
            ],
        ),
        table(
            "Warm-ups at the best rate, against the best of them, in % of the gain",
            [(group, share, own) for (group, share), own in by_warmup(looked, warmups).items() if own],
            [
                ("where", lambda row: row[0]),
                ("% of the updates", lambda row: 100 * row[1]),
                ("cases", _count),
                ("median", _percentile(0.5)),
                ("90th percentile", _percentile(0.9)),
                ("at most 1 %", _at_most(0.01)),
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


def _count(row: Sequence[Any]) -> int:
    """A row ends in the trainings that it is about."""
    return len(row[-1])


def _percentile(share: float) -> Callable[[Sequence[Any]], float]:
    """Of what is lost, in % of the gain."""
    return lambda row: 100 * quantile_of(row[-1], lambda one: one.regret, share)


def _at_most(share: float) -> Callable[[Sequence[Any]], int]:
    return lambda row: sum(one.regret <= share for one in row[-1])


def _stuck(row: Sequence[Any]) -> int:
    return sum(one.stuck for one in row[-1])


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


def figures(named: Named, looks: Looks, moved: Sequence[Moved]) -> list[StudyFigure]:
    """Best rates, named and found, what looks lose, and how best rates move with the length of the training."""
    return [
        StudyFigure.of_panels(
            name="rates",
            title="The best rate: named, and found by trainings",
            caption="A point a case, judged by constants of cases that share neither model nor text nor initial "
            "weights with it.",
            panels=[
                _scatter(way, named[way]) for way in WAYS if any(one.rate is not None for one in named.get(way, ()))
            ],
            wide=True,
        ),
        StudyFigure.of_panels(
            name="looks",
            title="How long one must look before rates can be compared",
            caption="The mean share of the best's gain that is lost beside the median best rate of the optimiser, with "
            "its 95 % interval over families: below 0 a look is worth it.",
            panels=[_of_looks(looks, named)],
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


def _of_looks(looks: Looks, named: Named) -> Panel:
    series = []
    for hue, (words, by_updates) in enumerate(looks.items()):
        found = [less_than(own, named[NAIVE]) for own in by_updates.values()]
        mean, half = ([100 * float(getattr(one, of)) for one in found] for of in ("mean", "half_width"))
        series.append(measured(words, hue, list(by_updates), mean, half))
    return Panel(
        title="lost beside the median rate",
        xlabel="updates before they are compared",
        ylabel="% of the best's gain",
        series=[*series, line("the median rate itself", "claimed", -1, _ends(looks), 0.0)],
        log_x=True,
    )


def _ends(looks: Looks) -> list[float]:
    asked = [float(updates) for by_updates in looks.values() for updates in by_updates]
    return [min(asked), max(asked)]


def _scatter(way: str, named: Sequence[NamedRate]) -> Panel:
    """A hue for each optimiser."""
    found = [one.looked.ladder.best for one in named if one.rate is not None]
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
    ladders: Ladders, named: Named, looks: Looks, moved: Sequence[Moved], looked: Sequence[Looked], warmups: Warmups
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
                    way: {"rate": _rate(one), "nats": one.nats, "regret": one.regret}
                    for way, all_of in named.items()
                    for one in all_of
                    if one.looked.case == case
                },
                "warmups": [{"share": share, "nats": nats} for share, nats in warmups.get(case, {}).items()],
            }
            for case, several in ladders.items()
        },
        "rules": {way: _summary(several, named) for way, several in named.items()},
        "looks": {
            words: {str(updates): _summary(several, named) for updates, several in by_updates.items()}
            for words, by_updates in looks.items()
        },
        "warmups": {
            group: {
                f"{share:g}": _costs(own) | {"within_1_percent": sum(one.regret <= 0.01 for one in own)}
                for (of, share), own in by_warmup(looked, warmups).items()
                if of == group and own
            }
            for group in NORMED
        },
        "off": {
            f"{2.0**rungs:g}": _costs(several) | {"stuck": sum(one.stuck for one in several)}
            for rungs in OFF
            if (several := off_by(looked, rungs))
        },
        "moves": [
            {
                "case": one.case.name,
                "updates": one.longer.updates,
                "found": one.found,
                "foretold": one.foretold,
                "lost": one.lost,
            }
            for one in moved
        ],
    }


def _rate(one: NamedRate) -> float | None:
    return None if one.rate is None else 10**one.rate


def _summary(several: Sequence[NamedRate], named: Named) -> dict[str, Any]:
    less = less_than(several, named[NAIVE])
    return _costs(several) | {
        "median_nats": quantile_of(several, lambda one: one.lost_nats, 0.5),
        "high_nats": quantile_of(several, lambda one: one.lost_nats, 0.9),
        "within_1_percent": sum(one.regret <= 0.01 for one in several),
        "within_2_percent": sum(one.regret <= 0.02 for one in several),
        "stuck": sum(one.stuck for one in several),
        "within_2": sum(one.within(2) for one in several),
        "less": float(less.mean),
        "less_half_width": float(less.half_width),
    }


def _costs(several: Sequence[NamedRate]) -> dict[str, Any]:
    return {
        "cases": len(several),
        "median_regret": quantile_of(several, lambda one: one.regret, 0.5),
        "high_regret": quantile_of(several, lambda one: one.regret, 0.9),
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
