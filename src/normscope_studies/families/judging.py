"""The wiring that a model's own source gives, and the diagnoses judged by it."""

import csv
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from ..engine.claims import share_claim
from ..engine.page import Claim, StudyTable

HOW_READ = (
    "by hand, from the forward functions of the classes that column `read` names, in transformers "
    "5.23; a second time where the doctor said otherwise, which changed one row"
)
_Judgement = Literal["right", "unnamed", "wrong", "wrong and sure"]
JUDGEMENTS: tuple[_Judgement, ...] = ("right", "unnamed", "wrong", "wrong and sure")
_MIXING = ("mixer", "convolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceWiring:
    """One model type by its source."""

    placements: Mapping[str, frozenset[str]]
    """The placements of each kind of sub-layer: names, or formulas where no name is registered. Of
    kinds that are not here nothing has been written down.
    """
    read: str
    """Names of the classes that say so."""
    warnings: frozenset[str]
    """Rules whose warnings are right of it as its authors meant it."""


@cache
def source_wirings() -> dict[str, _SourceWiring]:
    """Returns the source's wiring by model type."""
    lines = (files(__package__) / "truth.csv").read_text(encoding="utf-8").splitlines()
    found = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        kinds = {kind: row[kind] for kind in ("attention", "cross_attention", "feed_forward")}
        kinds |= dict.fromkeys(_MIXING, row["mixing"])
        found[row["type"]] = _SourceWiring(
            placements={
                kind: frozenset(names.split("|")) for kind, names in kinds.items() if names
            },
            read=row["read"],
            warnings=frozenset(row["warnings"].split()),
        )
    return found


def judged_sublayer(sublayer: Mapping[str, Any], truth: Collection[str]) -> _Judgement:
    """Judges what the doctor said of sub-layers that are alike; a formula that has no name is right
    where it is the same.
    """
    name = sublayer["placement"]
    if (name or sublayer["formula"]) in truth:
        return "right"
    if not name:
        return "unnamed"
    return "wrong and sure" if sublayer["confidence"] == "sure" else "wrong"


def judged_model(row: Mapping[str, Any], truth: _SourceWiring) -> Counter[_Judgement]:
    """Counts the judgements on a diagnosed model's sub-layers, of kinds that are written down."""
    counts: Counter[_Judgement] = Counter()
    for one in row["sublayers"]:
        if one["kind"] in truth.placements:
            counts[judged_sublayer(one, truth.placements[one["kind"]])] += one["count"]
    return counts


def false_warnings(row: Mapping[str, Any], truth: _SourceWiring) -> list[str]:
    """Rules that warn of a model that is as its authors meant it, and are not right of it."""
    return sorted({rule for rule, _, _ in row["warnings"]} - truth.warnings)


_JudgedTypes = Mapping[str, tuple[Mapping[str, Any], _SourceWiring]]
"""The findings on a model type, and the wiring that its source gives."""


def judged_counts(judged: _JudgedTypes) -> dict[str, int]:
    """Counts sub-layers by their judgement, and types with something false."""
    sublayers = Counter[_Judgement]()
    for one in judged.values():
        sublayers += judged_model(*one)
    sure = [
        one["count"]
        for row, truth in judged.values()
        for one in row["sublayers"]
        if one["kind"] in truth.placements and one["placement"] and one["confidence"] == "sure"
    ]
    return {
        "types with their truth": len(judged),
        **{f"sub-layers {judgement}": sublayers[judgement] for judgement in JUDGEMENTS},
        "sub-layers named for sure": sum(sure),
        "types with a false error": sum(bool(row["errors"]) for row, _ in judged.values()),
        "types with a false warning": sum(bool(false_warnings(*one)) for one in judged.values()),
    }


def judged_claims(judged: _JudgedTypes) -> list[Claim]:
    """Shares of types; none without any."""
    if not judged:
        return []
    common = {"source": f"families/truth.csv, read {HOW_READ}", "of": "model types"}
    counts = {family: judged_model(*one) for family, one in judged.items()}
    return [
        share_claim(
            "sure is right",
            "no sub-layer that is named for sure has another placement by the model's source",
            holds={family: not some["wrong and sure"] for family, some in counts.items()},
            **common,
        ),
        share_claim(
            "named rightly",
            "every sub-layer has the name, or the formula, that the model's source says",
            holds={family: some["right"] == some.total() for family, some in counts.items()},
            **common,
        ),
        share_claim(
            "no false warning",
            "no warning is given of a model as its authors meant it but such as its source bears "
            "out",
            holds={family: not false_warnings(*one) for family, one in judged.items()},
            **common,
        ),
    ]


def unlike_source(judged: _JudgedTypes) -> StudyTable:
    """Sub-layers that were called something else, or nothing."""
    return StudyTable(
        title="Sub-layers that are not what the model's source says",
        columns=("model type", "kind", "by its source", "name", "confidence", "count", "formula"),
        rows=[
            [
                family,
                one["kind"],
                " or ".join(sorted(told)),
                one["placement"],
                one["confidence"],
                one["count"],
                shown,
            ]
            for family, (row, truth) in judged.items()
            for one in row["sublayers"]
            if (told := truth.placements.get(one["kind"])) and judged_sublayer(one, told) != "right"
            for shown in [one["formula"][:_MOST_SHOWN]]
        ],
    )


_MOST_SHOWN = 120
"""Letters of a formula."""


def warned(judged: _JudgedTypes) -> StudyTable:
    """Warnings that a model's source does not bear out."""
    return StudyTable(
        title="False warnings",
        columns=("model type", "rule", "where", "message"),
        rows=[
            [family, *warning]
            for family, (row, truth) in judged.items()
            for warning in row["warnings"]
            if warning[0] not in truth.warnings
        ],
    )
