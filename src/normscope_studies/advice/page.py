"""Pictures, tables and data of the study of advice."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from normscope.report.chart import Panel

from ..engine.page import StudyFigure, StudyTable, line, measured, scatter, table
from .cases import AdviceCase, rate_of
from .ladder import Ladder, nats
from .rules import NAIVE, OFF, WAYS, Looked, Named, NamedRate, less_than, off_by, quantile_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """Holds what the claims, pictures, tables and data are made of."""

    ladders: Sequence[Ladder]
    """One a case."""
    looked: Sequence[Looked]
    """The cases that learned."""
    named: Named
    looks: Mapping[str, Mapping[int, Sequence[NamedRate]]]
    """Rates by the words for what was tried, then by the updates after which it was compared."""
    warmups: Mapping[AdviceCase, Mapping[float, float]]
    """The loss at the end, at the best rung: by case, then by the warm-up's share of the updates.
    """


def lost_by_usual_warmup(one: Looked, warmups: Mapping[float, float]) -> float:
    """Returns a share of the best's gain, against the best of the warm-ups that were tried."""
    usual = warmups.get(one.case.usual_warmup_share, one.ladder.lowest_nats)
    return max(0.0, usual - min(warmups.values())) / one.ladder.gain


NORMED = {"residual sums are normed": True, "residual sums are not normed": False}


def by_warmup(
    looked: Sequence[Looked], warmups: Mapping[AdviceCase, Mapping[float, float]]
) -> dict[tuple[str, float], list[NamedRate]]:
    """Returns the trainings at the best rung, against the best of the warm-ups that were tried: by
    whether sums are normed, and by the warm-up's share of the updates, rising.
    """
    shares = sorted({share for own in warmups.values() for share in own})

    def trained(one: Looked, share: float) -> NamedRate:
        losses = warmups[one.case]
        end_nats = one.ladder.lowest_nats + losses[share] - min(losses.values())
        return NamedRate(looked=one, rate=None, nats=end_nats)

    found = {}
    for group, normed in NORMED.items():
        members = [one for one in looked if (one.facts.normed_sums > 0.5) == normed]
        for share in shares:
            found[group, share] = [trained(one, share) for one in members]
    return found


def tables(found: Advised) -> list[StudyTable]:
    """Rules side by side, looks, warm-ups, and every case."""
    return [
        _of_rules(found),
        _of_wrong_rates(found),
        _of_looking(found),
        _of_warmups(found),
        _of_usual_warmups(found),
        _of_cases(found),
    ]


def _of_rules(found: Advised) -> StudyTable:
    return _summed(
        "What a training at the named rate loses, each rule by constants of cases that share "
        "nothing with it",
        ["rule"],
        {
            (way,): summary(found.named[way], found.named[NAIVE])
            for way in WAYS
            if way in found.named
        },
        {
            "median_nats": "median, nats",
            "high_nats": "90th percentile, nats",
            "median_regret": "median, % of the gain",
            "high_regret": "90th percentile, %",
            "within_1_percent": "at most 1 %",
            "within_2_percent": "at most 2 %",
            "stuck": "stuck",
            "within_2": "within 2",
            "less": "mean beside the median's, %",
        },
    )


def _of_wrong_rates(found: Advised) -> StudyTable:
    return _summed(
        "What a wrong rate costs, in % of the best's gain",
        ["times the best rate"],
        {(2.0**rungs,): summary(own) for rungs in OFF if (own := off_by(found.looked, rungs))},
        {"median_regret": "median", "high_regret": "90th percentile", "stuck": "stuck"},
    )


def _of_looking(found: Advised) -> StudyTable:
    rows = {}
    for words, by_updates in found.looks.items():
        for updates, own in by_updates.items():
            rows[words, updates] = summary(own, found.named[NAIVE])
    return _summed(
        "How long one must look: trainings compared after so many updates, of which the best goes "
        "on",
        ["tried", "after updates"],
        rows,
        {
            "median_regret": "median, % of the gain",
            "high_regret": "90th percentile, %",
            "within_1_percent": "at most 1 %",
            "stuck": "stuck",
            "less": "mean beside the median's, %",
            "less_half_width": "± %",
        },
    )


def _of_warmups(found: Advised) -> StudyTable:
    rows = {}
    for (group, share), own in by_warmup(found.looked, found.warmups).items():
        if own:
            rows[group, 100 * share] = summary(own)
    return _summed(
        "Warm-ups at the best rate, against the best of them, in % of the gain",
        ["where", "% of the updates"],
        rows,
        {
            "median_regret": "median",
            "high_regret": "90th percentile",
            "within_1_percent": "at most 1 %",
        },
    )


def _of_usual_warmups(found: Advised) -> StudyTable:
    warmups = found.warmups

    def best_percent(one: Looked) -> float:
        losses = warmups[one.case]
        return 100 * min(losses, key=losses.__getitem__)

    return table(
        "What warm-ups lose at the best rate, in % of the gain",
        found.looked,
        [
            ("case", lambda one: one.case.name),
            ("usual, % of the updates", lambda one: 100 * one.case.usual_warmup_share),
            ("best, %", best_percent),
            ("lost by the usual", lambda one: 100 * lost_by_usual_warmup(one, warmups[one.case])),
        ],
    )


def _summed(
    title: str,
    labels: Sequence[str],
    rows: Mapping[tuple[Any, ...], Mapping[str, Any]],
    columns: Mapping[str, str],
) -> StudyTable:
    """rows: by their labels, summaries; columns: the headings of their values, of which shares are
    in %.
    """

    def cell(one: Mapping[str, Any], key: str) -> Any:
        return 100 * one[key] if key in _SHARES else one[key]

    written = []
    for of, one in rows.items():
        values = [cell(one, key) for key in columns]
        written.append([*of, one["cases"], *values])
    return StudyTable(title=title, columns=[*labels, "cases", *columns.values()], rows=written)


_SHARES = ("median_regret", "high_regret", "less", "less_half_width")


def _of_cases(found: Advised) -> StudyTable:
    """Lists what was named for each, beside what its trainings say."""
    lost = {}
    for way, several in found.named.items():
        for one in several:
            lost[one.looked.case, way] = 100 * one.regret
    ways = [way for way in WAYS if way in found.named]
    rows = []
    for ladder in found.ladders:
        best = (10**ladder.best, ladder.gain) if ladder.learned else (None, None)
        rows.append([ladder.case.name, *best, *(lost.get((ladder.case, way)) for way in ways)])
    return StudyTable(
        title="Every case: the best rate, and what each rule loses, in % of the gain",
        columns=["case", "best rate", "gain, nats", *ways],
        rows=rows,
    )


def figures(found: Advised) -> list[StudyFigure]:
    """Best rates, named and found, what looks lose, and how best rates move with the length of the
    training.
    """
    panels = []
    for way in WAYS:
        several = found.named.get(way, ())
        if any(one.rate is not None for one in several):
            panels.append(_scatter(way, several))
    return [
        StudyFigure.of_panels(
            name="rates",
            title="The best rate: named, and found by trainings",
            caption=(
                "A point a case, judged by constants of cases that share neither model nor text "
                "nor initial weights with it."
            ),
            panels=panels,
        ),
        StudyFigure.of_panels(
            name="looks",
            title="How long one must look before rates can be compared",
            caption=(
                "The mean share of the best's gain that is lost beside the median best rate of the "
                "optimiser, with its 95 % interval over families: below 0 a look is worth it."
            ),
            panels=[_of_looks(found)],
            wide=False,
        ),
    ]


def _of_looks(found: Advised) -> Panel:
    asked = [float(updates) for by_updates in found.looks.values() for updates in by_updates]
    series = []
    for hue, (words, by_updates) in enumerate(found.looks.items()):
        less = [less_than(own, found.named[NAIVE]) for own in by_updates.values()]
        mean = [100 * float(one.mean) for one in less]
        half = [100 * float(one.half_width) for one in less]
        series.append(measured(words, hue, list(by_updates), mean, half))
    return Panel(
        title="lost beside the median rate",
        xlabel="updates before they are compared",
        ylabel="% of the best's gain",
        series=[
            *series,
            line("the median rate itself", "claimed", -1, [min(asked), max(asked)], 0.0),
        ],
        log_x=True,
    )


def _scatter(way: str, named: Sequence[NamedRate]) -> Panel:
    """A hue for each optimiser."""
    found = [one.looked.ladder.best for one in named if one.rate is not None]
    ends = (min(found) - 0.3, max(found) + 0.3)
    return scatter(
        way,
        _by(
            named,
            lambda one: one.looked.case.optimizer,
            lambda one: (one.rate, one.looked.ladder.best),
        ),
        xlabel="named, log10 of the rate",
        ylabel="best, log10 of the rate",
        beside=[line("named = best", "claimed", -1, ends, ends)],
    )


def _by(several: Sequence[Any], label: Any, point: Any) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for one in sorted(several, key=label):
        found.setdefault(label(one), []).append(point(one))
    return found


def data(found: Advised) -> dict[str, Any]:
    """Everything that the page shows."""
    naive = found.named[NAIVE]
    by_group: dict[str, dict[str, Any]] = {group: {} for group in NORMED}
    for (group, share), own in by_warmup(found.looked, found.warmups).items():
        if own:
            by_group[group][f"{share:g}"] = _kept(summary(own), "within_1_percent")
    looks: dict[str, dict[str, Any]] = {words: {} for words in found.looks}
    for words, by_updates in found.looks.items():
        for updates, several in by_updates.items():
            looks[words][str(updates)] = summary(several, naive)
    return {
        "cases": {ladder.case.name: _case_data(found, ladder) for ladder in found.ladders},
        "rules": {way: summary(several, naive) for way, several in found.named.items()},
        "looks": looks,
        "warmups": by_group,
        "off": {
            f"{2.0**rungs:g}": _kept(summary(several), "stuck")
            for rungs in OFF
            if (several := off_by(found.looked, rungs))
        },
    }


def _case_data(found: Advised, ladder: Ladder) -> dict[str, Any]:
    """Returns what was found of the case of a ladder; a case that did not learn has no facts."""
    facts = None
    for looked in found.looked:
        if looked.case == ladder.case:
            facts = asdict(looked.facts) | {"parameters": looked.parameters}
    named = {}
    for way, several in found.named.items():
        for one in several:
            if one.looked.case == ladder.case:
                named[way] = {
                    "rate": None if one.rate is None else 10**one.rate,
                    "nats": one.nats,
                    "regret": one.regret,
                }
    warmups = found.warmups.get(ladder.case, {})
    return {
        "family": ladder.case.family,
        "facts": facts,
        "ladders": [of_ladder(ladder)],
        "named": named,
        "warmups": [{"share": share, "nats": nats} for share, nats in warmups.items()],
    }


def summary(several: Sequence[NamedRate], naive: Sequence[NamedRate] = ()) -> dict[str, Any]:
    """Returns what trainings lost, as shares of the gain and in nats; naive: what they are compared
    with.
    """
    found = {
        "cases": len(several),
        "median_regret": quantile_of(several, lambda one: one.regret, 0.5),
        "high_regret": quantile_of(several, lambda one: one.regret, 0.9),
        "median_nats": quantile_of(several, lambda one: one.lost_nats, 0.5),
        "high_nats": quantile_of(several, lambda one: one.lost_nats, 0.9),
        "within_1_percent": sum(one.regret <= 0.01 for one in several),
        "within_2_percent": sum(one.regret <= 0.02 for one in several),
        "stuck": sum(one.stuck for one in several),
        "within_2": sum(one.within(2) for one in several),
    }
    if not naive:
        return found
    less = less_than(several, naive)
    return found | {"less": float(less.mean), "less_half_width": float(less.half_width)}


def _kept(found: Mapping[str, Any], what: str) -> dict[str, Any]:
    return {key: found[key] for key in ("cases", "median_regret", "high_regret", what)}


def of_ladder(one: Ladder) -> dict[str, Any]:
    """Returns what its trainings ended at."""
    return {
        "updates": one.updates,
        "unigram_nats": one.unigram_nats,
        "bigram_nats": one.bigram_nats,
        "learned": one.learned,
        "best_rate": 10**one.best,
        "lowest_nats": one.lowest_nats,
        "best_nats": [
            nats(seen[one.best_step]) for seen in (one.outcomes, one.again) if one.best_step in seen
        ],
        "trainings": [{"rate": rate_of(step), "nats": one.nats(step)} for step in one.outcomes],
    }
