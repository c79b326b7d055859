"""What the study of trainings that are foretold says."""

from collections.abc import Mapping, Sequence

from normscope.evidence.estimates import with_interval
from normscope.evidence.judging import between
from normscope.report.words import interval

from ..advice.claims import share_claim, warmup_claims
from ..advice.judge import Judged
from ..advice.warmup import Warmup
from ..engine.claims import judged
from ..engine.page import Claim
from .foretelling import Foretold
from .judge import gained, skill, upper
from .ways import FACTS, FACTS_AND_CHANGE, FACTS_AND_EARLY, FORMULA_ALONE, MEASURED, PREDICTED

AREAS = {PREDICTED: 0.9, MEASURED: 0.97, FACTS_AND_EARLY: 0.97}
"""Under the ROC curve: what is hoped of a prediction without a model, and of measurements."""
SETS = ("families left out", "held out")
By = Mapping[str, Mapping[str, Sequence[Foretold]]]
"""By set of cases, then by way."""
_SAFE, _NEAR = 0.95, 0.95


def claims(found: By, cases: Sequence[Judged], warmups: Sequence[Warmup]) -> list[Claim]:
    """Of ways to foretell, and of the advice on held-out cases."""
    return [
        *(_area(found, way, least) for way, least in AREAS.items()),
        _gains(found, PREDICTED, FORMULA_ALONE, "The predicted change tells something beyond the rate and the formula"),
        _gains(found, FACTS_AND_CHANGE, FACTS, "The measured change tells something beyond the doctor's facts"),
        _gains(found, FACTS_AND_EARLY, FACTS, "A short training tells something beyond the doctor's facts"),
        *_advice(cases, warmups),
    ]


def _area(found: By, way: str, least: float) -> Claim:
    skills = {name: skill(ways[way]) for name, ways in found.items() if ways[way]}
    return judged(
        name=f"{way}: trainings that are stuck",
        statement=f"By the {way} and constants that were fitted to other trainings, those that are stuck are told from "
        f"the others, of all at and above the best rates, with an area under the ROC curve of at least {least:g}.",
        source="NormScope",
        found="; ".join(f"{name}: {with_interval(one.upper)}" for name, one in skills.items()),
        holds={name: between(one.upper, least=least) for name, one in skills.items()},
    )


def _gains(found: By, way: str, other: str, what: str) -> Claim:
    differences = {name: gained(ways[way], ways[other], upper) for name, ways in found.items() if ways[way]}
    return judged(
        name=f"{way} beside {other}",
        statement=f"{what}: the area under the ROC curve is larger, of the same trainings.",
        source="NormScope",
        found="larger by "
        + "; ".join(f"{name}: {interval(float(one.mean), float(one.half_width))}" for name, one in differences.items()),
        holds={name: between(one, least=0.0) for name, one in differences.items()},
    )


def _advice(cases: Sequence[Judged], warmups: Sequence[Warmup]) -> list[Claim]:
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
