"""Claims, figures and tables of the study of trainings that are foretold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.doctor.advise.rule import EarlyRule
from normscope.evidence.estimates import plain_estimate
from normscope.report.chart import Panel, Series
from normscope.report.words import number

from ..advice.claims import families_of, share_claim, warmup_claims
from ..advice.judge import Judgement
from ..advice.ladder import TrainedCase
from ..advice.measuring import Warmup
from ..advice.page import as_rate, of_case, of_cases, of_warmups
from ..engine.claims import claim
from ..engine.figures import line, scatter
from ..engine.page import Claim, StudyFigure, StudyTable, table
from .foretelling import Forecast, Skill, area, every, gained, skill, upper
from .ways import FACTS, FACTS_AND_CHANGE, FACTS_AND_EARLY, FORMULA_ALONE, MEASURED, PREDICTED, CaseLook, Way

AREAS = {PREDICTED: 0.9, MEASURED: 0.97, FACTS_AND_EARLY: 0.97}
"""Under the ROC curve: what is hoped of a prediction without a model, and of measurements."""
SETS = ("families left out", "held out")
ForecastsByWay = Mapping[str, Mapping[str, Sequence[Forecast]]]
"""By set of cases, then by way."""
_SAFE, _NEAR = 0.95, 0.95


def claims(found: ForecastsByWay, cases: Sequence[Judgement], warmups: Sequence[Warmup]) -> list[Claim]:
    """Of ways to foretell, and of the advice on held-out cases."""
    return [
        *(_area(found, way, least) for way, least in AREAS.items()),
        _gains(found, PREDICTED, FORMULA_ALONE, "The predicted change tells something beyond the rate and the formula"),
        _gains(found, FACTS_AND_CHANGE, FACTS, "The measured change tells something beyond the doctor's facts"),
        _gains(found, FACTS_AND_EARLY, FACTS, "A short training tells something beyond the doctor's facts"),
        *_advice(cases, warmups),
    ]


def _area(found: ForecastsByWay, way: str, least: float) -> Claim:
    return claim(
        f"{way}: trainings that are stuck",
        f"By the {way} and constants that were fitted to other trainings, those that are stuck are told from the "
        f"others, of all at and above the best rates, with an area under the ROC curve of at least {least:g}.",
        source="NormScope",
        value="the area",
        holds={name: area(ways[way], upper) for name, ways in found.items() if ways[way]},
        least=least,
    )


def _gains(found: ForecastsByWay, way: str, other: str, what: str) -> Claim:
    return claim(
        f"{way} beside {other}",
        f"{what}: the area under the ROC curve is larger, of the same trainings.",
        source="NormScope",
        value="larger by",
        holds={name: gained(ways[way], ways[other], upper) for name, ways in found.items() if ways[way]},
        least=0.0,
    )


def _advice(cases: Sequence[Judgement], warmups: Sequence[Warmup]) -> list[Claim]:
    """Of the constants that the package has, on held-out cases."""
    made = []
    for way, rates in {"Instant advice": [c.instant for c in cases], "Probe": [c.probe for c in cases]}.items():
        made += [
            share_claim(
                f"{way}: the rate trains",
                "At the rate that is named for a held-out case it trains, in at least 95 % of cases.",
                [not one.stuck for one in rates],
                families_of(rates),
                least=_SAFE,
            ),
            share_claim(
                f"{way}: the best rate",
                "The rate that is named for a held-out case lies within a factor of 3 of the best, in at least 95 % of "
                "cases.",
                [one.within(3) for one in rates],
                families_of(rates),
                least=_NEAR,
            ),
        ]
    return [*made, *warmup_claims(warmups)]


def figures(found: ForecastsByWay, shown: Sequence[str]) -> list[StudyFigure]:
    """How trainings are told apart, and the largest rate that trains, by the ways that are shown."""
    guessed = line("guessed", "claimed", -1, (0.0, 1.0), (0.0, 1.0))
    told_apart = [
        Panel(
            title=name,
            xlabel="share of the others that are called stuck",
            ylabel="share of the stuck that are found",
            series=[guessed, *(_curve(way, hue, ways[way]) for hue, way in enumerate(shown) if ways[way])],
        )
        for name, ways in found.items()
    ]
    return [
        StudyFigure.of_panels(
            name="told_apart",
            title="Trainings that are stuck, told from the others",
            caption="Every training of the ladders; the constants were fitted to cases of other families.",
            panels=told_apart,
            wide=True,
        ),
        StudyFigure.of_panels(
            name="largest_rates",
            title="The rate from which on trainings are stuck: foretold, and found",
            caption="A point a case, by constants that were fitted to cases of other families.",
            panels=[_edges(found, way) for way in shown],
            wide=True,
        ),
    ]


def _curve(way: str, hue: int, found: Sequence[Forecast]) -> Series:
    pairs = sorted((pair for one in found for pair in every(one)), key=lambda pair: -pair[0])
    stuck = np.array([bad for _, bad in pairs])
    x, y = np.cumsum(~stuck) / max(1, (~stuck).sum()), np.cumsum(stuck) / max(1, stuck.sum())
    return Series(label=way, kind="predicted", hue=hue, x=[0.0, *map(float, x)], y=[0.0, *map(float, y)])


def _edges(found: ForecastsByWay, way: str) -> Panel:
    points = {
        name: [(one.edge, one.looked.known.stuck) for one in ways[way] if one.looked.known.stuck is not None]
        for name, ways in found.items()
    }
    ends = [end for places in points.values() for place in places for end in place] or [0.0, 1.0]
    span = min(ends), max(ends)
    return scatter(
        way,
        points,
        xlabel="foretold, log10 of the rate",
        ylabel="found, log10 of the rate",
        beside=[line("foretold = found", "claimed", -1, span, span)],
    )


def tables(
    found: ForecastsByWay, raw: ForecastsByWay, judged: Sequence[Judgement], warmups: Sequence[Warmup]
) -> list[StudyTable]:
    """Ways by set of cases, with constants and without; what the advice named for held-out cases; warm-ups."""
    made = [
        table(
            f"{name}: area under the ROC curve, the largest rate that trains, R² of the loss at the end",
            skills.items(),
            [
                ("way", lambda row: row[0]),
                ("cases", lambda row: row[1].cases),
                ("at and above the best rate", lambda row: row[1].upper),
                ("all trainings", lambda row: row[1].every),
                ("rank correlation", lambda row: _ranked(row[1].rank)),
                ("median factor", lambda row: row[1].factor),
                ("within 3", lambda row: f"{row[1].within_3} of {row[1].bounded}"),
                ("R²", lambda row: row[1].explained),
            ],
        )
        for name, skills in _skills(found).items()
    ]
    alone = table(
        "One number alone, without constants: area under the ROC curve",
        [(name, way, one) for name, skills in _skills(raw).items() for way, one in skills.items()],
        [
            ("cases", lambda row: row[0]),
            ("way", lambda row: row[1]),
            ("at and above the best rate", lambda row: row[2].upper),
            ("all trainings", lambda row: row[2].every),
        ],
    )
    return [*made, alone, of_cases(judged), of_warmups(warmups)]


def _skills(found: ForecastsByWay) -> dict[str, dict[str, Skill]]:
    """By set of cases, then by way, of those that foretell any."""
    return {name: {way: skill(some) for way, some in ways.items() if some} for name, ways in found.items()}


def _ranked(rank: tuple[float, float, float]) -> str:
    value, low, high = rank
    return "–" if math.isnan(value) else f"{number(value)} ({number(low)} to {number(high)})"


def data(
    found: ForecastsByWay,
    raw: ForecastsByWay,
    known: Sequence[TrainedCase],
    looked: Sequence[CaseLook],
    judged: Sequence[Judgement],
    warmups: Sequence[Warmup],
    ways: Sequence[Way],
    early_rule: EarlyRule,
) -> Mapping[str, Any]:
    """Everything that the page shows, and the constants that the package ships."""
    by_case = {one.known.case: one for one in judged}
    return {
        "early_rule": asdict(early_rule),
        "ways": {way.name: way.told for way in ways},
        "skills": {name: {way: _plain(one) for way, one in of.items()} for name, of in _skills(found).items()},
        "without_constants": {name: {way: _plain(one) for way, one in of.items()} for name, of in _skills(raw).items()},
        "cases": {one.case.name: of_case(one, by_case.get(one.case)) for one in known},
        "predicted": {one.name: one.predicted for one in looked},
        "edges": {
            name: {
                way: {one.looked.name: [10**one.edge, as_rate(one.looked.known.stuck)] for one in some}
                for way, some in of.items()
            }
            for name, of in found.items()
        },
        "warmups": [asdict(one) | {"case": one.case.name} for one in warmups],
    }


def _plain(one: Skill) -> dict[str, Any]:
    estimates = {name: plain_estimate(getattr(one, name)) for name in ("upper", "every", "explained")}
    counts = {"cases": one.cases, "within_3": one.within_3, "bounded": one.bounded}
    return {**estimates, **counts, "rank": one.rank, "median_factor": one.factor}
