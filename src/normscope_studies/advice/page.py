"""Pictures, tables and data of the study of advice."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.measure import Estimate
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


def of_group(looked: Sequence[Looked], group: str) -> list[Looked]:
    """Cases whose residual sums are normed, or are not."""
    return [one for one in looked if (one.facts.normed_sums > 0.5) == NORMED[group]]


def lost_by_warmup(looked: Sequence[Looked], warmups: Warmups, share: float) -> list[NamedRate]:
    """Trainings at the best rung with that warm-up, against the best of the warm-ups that were tried."""
    found = []
    for one in looked:
        own = warmups[one.case]
        nats = one.ladder.lowest_nats + own[share] - min(own.values())
        found.append(NamedRate(looked=one, rate=None, nats=nats))
    return found


def tables(
    ladders: Ladders, named: Named, looks: Looks, moved: Sequence[Moved], looked: Sequence[Looked], warmups: Warmups
) -> list[StudyTable]:
    """Rules side by side, looks, horizons, warm-ups, and every case."""
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
                ("mean beside the median's, %", lambda way: 100 * float(less_than(named[way], named[NAIVE]).mean)),
            ],
        ),
        table(
            "What a wrong rate costs, in % of the best's gain",
            [rungs for rungs in OFF if off_by(looked, rungs)],
            [
                ("times the best rate", lambda rungs: 2.0**rungs),
                ("cases", lambda rungs: len(off_by(looked, rungs))),
                ("median", lambda rungs: 100 * quantile_of(off_by(looked, rungs), lambda one: one.regret, 0.5)),
                (
                    "90th percentile",
                    lambda rungs: 100 * quantile_of(off_by(looked, rungs), lambda one: one.regret, 0.9),
                ),
                ("stuck", lambda rungs: sum(one.stuck for one in off_by(looked, rungs))),
            ],
        ),
        table(
            "How long one must look: trainings compared after so many updates, of which the best goes on",
            [(words, updates) for words, by_updates in looks.items() for updates in by_updates],
            [
                ("tried", lambda at: at[0]),
                ("after updates", lambda at: at[1]),
                ("cases", lambda at: len(looks[at[0]][at[1]])),
                (
                    "median, % of the gain",
                    lambda at: 100 * quantile_of(looks[at[0]][at[1]], lambda one: one.regret, 0.5),
                ),
                ("90th percentile, %", lambda at: 100 * quantile_of(looks[at[0]][at[1]], lambda one: one.regret, 0.9)),
                ("at most 1 %", lambda at: sum(one.regret <= 0.01 for one in looks[at[0]][at[1]])),
                ("stuck", lambda at: sum(one.stuck for one in looks[at[0]][at[1]])),
                ("mean beside the median's, %", lambda at: 100 * float(_less(looks, at, named).mean)),
                ("± %", lambda at: 100 * float(_less(looks, at, named).half_width)),
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
            [(group, share) for group in NORMED for share in shares_of(warmups) if of_group(looked, group)],
            [
                ("where", lambda at: at[0]),
                ("% of the updates", lambda at: 100 * at[1]),
                ("cases", lambda at: len(of_group(looked, at[0]))),
                ("median", lambda at: 100 * quantile_of(_by_warmup(looked, warmups, at), lambda one: one.regret, 0.5)),
                (
                    "90th percentile",
                    lambda at: 100 * quantile_of(_by_warmup(looked, warmups, at), lambda one: one.regret, 0.9),
                ),
                ("at most 1 %", lambda at: sum(one.regret <= 0.01 for one in _by_warmup(looked, warmups, at))),
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


def shares_of(warmups: Warmups) -> list[float]:
    """That were tried, rising."""
    return sorted({share for own in warmups.values() for share in own})


def _by_warmup(looked: Sequence[Looked], warmups: Warmups, at: tuple[str, float]) -> list[NamedRate]:
    return lost_by_warmup(of_group(looked, at[0]), warmups, at[1])


def _less(looks: Looks, at: tuple[str, int], named: Named) -> Estimate:
    return less_than(looks[at[0]][at[1]], named[NAIVE])


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
        found = [_less(looks, (words, updates), named) for updates in by_updates]
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
                f"{share:g}": {
                    "cases": len(own),
                    "median_regret": quantile_of(own, lambda one: one.regret, 0.5),
                    "high_regret": quantile_of(own, lambda one: one.regret, 0.9),
                    "within_1_percent": sum(one.regret <= 0.01 for one in own),
                }
                for share in shares_of(warmups)
                if (own := _by_warmup(looked, warmups, (group, share)))
            }
            for group in NORMED
        },
        "off": {
            f"{2.0**rungs:g}": {
                "cases": len(several),
                "median_regret": quantile_of(several, lambda one: one.regret, 0.5),
                "high_regret": quantile_of(several, lambda one: one.regret, 0.9),
                "stuck": sum(one.stuck for one in several),
            }
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
    return {
        "cases": len(several),
        "median_regret": quantile_of(several, lambda one: one.regret, 0.5),
        "high_regret": quantile_of(several, lambda one: one.regret, 0.9),
        "median_nats": quantile_of(several, lambda one: one.lost_nats, 0.5),
        "high_nats": quantile_of(several, lambda one: one.lost_nats, 0.9),
        "within_1_percent": sum(one.regret <= 0.01 for one in several),
        "within_2_percent": sum(one.regret <= 0.02 for one in several),
        "stuck": sum(one.stuck for one in several),
        "within_2": sum(one.within(2) for one in several),
        "less": float(less.mean),
        "less_half_width": float(less.half_width),
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
