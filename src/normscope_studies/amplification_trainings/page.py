"""Claims, figures and tables of the study of trainings that are foretold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.doctor.advise.rule import EarlyRule
from normscope.evidence.estimates import plain_estimate, with_interval
from normscope.evidence.judging import between
from normscope.report.chart import Panel, Series
from normscope.report.words import interval, number

from ..advice.claims import share_claim, warmup_claims
from ..advice.judge import Judgement
from ..advice.ladder import TrainedCase
from ..advice.measuring import Warmup
from ..advice.page import of_case, of_cases, of_warmups
from ..engine.claims import judged
from ..engine.page import Claim, StudyFigure, StudyTable, TableCell
from .foretelling import Forecast, Skill, every, gained, skill, upper
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
    skills = {name: skill(ways[way]) for name, ways in found.items() if ways[way]}
    return judged(
        name=f"{way}: trainings that are stuck",
        statement=f"By the {way} and constants that were fitted to other trainings, those that are stuck are told from "
        f"the others, of all at and above the best rates, with an area under the ROC curve of at least {least:g}.",
        source="NormScope",
        found="; ".join(f"{name}: {with_interval(one.upper)}" for name, one in skills.items()),
        holds={name: between(one.upper, least=least) for name, one in skills.items()},
    )


def _gains(found: ForecastsByWay, way: str, other: str, what: str) -> Claim:
    differences = {name: gained(ways[way], ways[other], upper) for name, ways in found.items() if ways[way]}
    return judged(
        name=f"{way} beside {other}",
        statement=f"{what}: the area under the ROC curve is larger, of the same trainings.",
        source="NormScope",
        found="larger by "
        + "; ".join(f"{name}: {interval(float(one.mean), float(one.half_width))}" for name, one in differences.items()),
        holds={name: between(one, least=0.0) for name, one in differences.items()},
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
                least=_SAFE,
            ),
            share_claim(
                f"{way}: the best rate",
                "The rate that is named for a held-out case lies within a factor of 3 of the best, in at least 95 % of "
                "cases.",
                [one.within(3) for one in rates],
                least=_NEAR,
            ),
        ]
    return [*made, *warmup_claims(warmups)]


def figures(found: ForecastsByWay, shown: Sequence[str]) -> list[StudyFigure]:
    """How trainings are told apart, and the largest rate that trains, by the ways that are shown."""
    title = "Trainings that are stuck, told from the others"
    panels = [
        Panel(
            title=name,
            xlabel="share of the others that are called stuck",
            ylabel="share of the stuck that are found",
            series=[
                Series(label="guessed", kind="claimed", hue=-1, x=(0.0, 1.0), y=(0.0, 1.0)),
                *(_curve(way, hue, ways[way]) for hue, way in enumerate(shown) if ways[way]),
            ],
        )
        for name, ways in found.items()
    ]
    return [
        StudyFigure.of_panels(
            name="told_apart",
            title=title,
            caption="Every training of the ladders; the constants were fitted to cases of other families.",
            panels=panels,
            told=title,
            wide=True,
        ),
        _edges(found, shown),
    ]


def _curve(way: str, hue: int, found: Sequence[Forecast]) -> Series:
    pairs = sorted((pair for one in found for pair in every(one)), key=lambda pair: -pair[0])
    stuck = np.array([bad for _, bad in pairs])
    x, y = np.cumsum(~stuck) / max(1, (~stuck).sum()), np.cumsum(stuck) / max(1, stuck.sum())
    return Series(label=way, kind="predicted", hue=hue, x=[0.0, *map(float, x)], y=[0.0, *map(float, y)])


def _edges(found: ForecastsByWay, shown: Sequence[str]) -> StudyFigure:
    panels = []
    for way in shown:
        series = []
        for hue, (name, ways) in enumerate(found.items()):
            edges = [(one.edge, one.looked.known.stuck) for one in ways[way] if one.looked.known.stuck is not None]
            series.append(
                Series(label=name, kind="points", hue=hue, x=[edge for edge, _ in edges], y=[at for _, at in edges])
            )
        ends = [value for one in series for value in (*one.x, *(y for y in one.y if y is not None))] or [0.0, 1.0]
        span = min(ends), max(ends)
        line = Series(label="foretold = found", kind="claimed", hue=-1, x=span, y=span)
        panels.append(
            Panel(
                title=way,
                xlabel="foretold, log10 of the rate",
                ylabel="found, log10 of the rate",
                series=[line, *series],
            )
        )
    title = "The rate from which on trainings are stuck: foretold, and found"
    return StudyFigure.of_panels(
        name="largest_rates",
        title=title,
        caption="A point a case, by constants that were fitted to cases of other families.",
        panels=panels,
        told=title,
        wide=True,
    )


def tables(
    found: ForecastsByWay, raw: ForecastsByWay, judged: Sequence[Judgement], warmups: Sequence[Warmup]
) -> list[StudyTable]:
    """Ways by set of cases, with constants and without; what the advice named for held-out cases; warm-ups."""
    columns = ["way", "cases", "at and above the best rate", "all trainings", "rank correlation", "median factor"]
    made = [
        StudyTable(
            title=f"{name}: area under the ROC curve, the largest rate that trains, R² of the loss at the end",
            columns=[*columns, "within 3", "R²"],
            rows=[_row(way, skill(some)) for way, some in ways.items() if some],
        )
        for name, ways in found.items()
    ]
    return [
        *made,
        StudyTable(
            title="One number alone, without constants: area under the ROC curve",
            columns=["cases", "way", "at and above the best rate", "all trainings"],
            rows=[
                [name, way, with_interval(one.upper), with_interval(one.every)]
                for name, ways in raw.items()
                for way, some in ways.items()
                if some
                for one in [skill(some)]
            ],
        ),
        of_cases(judged),
        of_warmups(warmups),
    ]


def _row(way: str, one: Skill) -> list[TableCell]:
    return [
        way,
        one.cases,
        with_interval(one.upper),
        with_interval(one.every),
        _ranked(one.rank),
        one.factor,
        f"{one.within_3} of {one.bounded}",
        with_interval(one.explained),
    ]


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
        "skills": {name: {way: _plain(some) for way, some in of.items() if some} for name, of in found.items()},
        "without_constants": {
            name: {way: _plain(some) for way, some in of.items() if some} for name, of in raw.items()
        },
        "cases": {one.case.name: of_case(one, by_case.get(one.case)) for one in known},
        "predicted": {one.name: one.predicted for one in looked},
        "edges": {
            name: {
                way: {one.looked.name: [10**one.edge, _power(one.looked.known.stuck)] for one in some}
                for way, some in of.items()
            }
            for name, of in found.items()
        },
        "warmups": [asdict(one) | {"case": one.case.name} for one in warmups],
    }


def _plain(found: Sequence[Forecast]) -> dict[str, Any]:
    one = skill(found)
    estimates = {name: plain_estimate(getattr(one, name)) for name in ("upper", "every", "explained")}
    counts = {"cases": one.cases, "within_3": one.within_3, "bounded": one.bounded}
    return {**estimates, **counts, "rank": one.rank, "median_factor": one.factor if math.isfinite(one.factor) else None}


def _power(decades: float | None) -> float | None:
    return None if decades is None else 10**decades
