"""The doctor's words about model types, judged by what their source says: counts, claims and what was not right."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..engine.claims import share_claim
from ..engine.page import Claim, StudyTable
from .truth import HOW_READ, JUDGEMENTS, Judgement, SourceWiring, false_warnings, judged_model, judged_sublayer

JudgedTypes = Mapping[str, tuple[Mapping[str, Any], SourceWiring]]
"""What was found of a model type, and what its source says."""


def judged_counts(judged: JudgedTypes) -> dict[str, int]:
    """Of sub-layers by what they were judged, and of types with something false."""
    sublayers = Counter[Judgement]()
    for one in judged.values():
        sublayers += judged_model(*one)
    return {
        "types with their truth": len(judged),
        **{f"sub-layers {judgement}": sublayers[judgement] for judgement in JUDGEMENTS},
        "sub-layers named for sure": _sure(judged),
        "types with a false error": sum(bool(row["errors"]) for row, _ in judged.values()),
        "types with a false warning": sum(bool(false_warnings(*one)) for one in judged.values()),
    }


def _sure(judged: JudgedTypes) -> int:
    kept = [one for row, truth in judged.values() for one in row["sublayers"] if one["kind"] in truth.placements]
    return sum(one["count"] for one in kept if one["placement"] and one["confidence"] == "sure")


def judged_claims(judged: JudgedTypes) -> list[Claim]:
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
            "no warning is given of a model as its authors meant it but such as its source bears out",
            holds={family: not false_warnings(*one) for family, one in judged.items()},
            **common,
        ),
    ]


def unlike_source(judged: JudgedTypes) -> StudyTable:
    """Sub-layers that were called something else, or nothing."""
    return StudyTable(
        title="Sub-layers that are not what the model's source says",
        columns=("model type", "kind", "by its source", "name", "confidence", "count", "formula"),
        rows=[
            [family, one["kind"], " or ".join(sorted(told)), one["placement"], one["confidence"], one["count"], shown]
            for family, (row, truth) in judged.items()
            for one in row["sublayers"]
            if (told := truth.placements.get(one["kind"])) and judged_sublayer(one, told) != "right"
            for shown in [one["formula"][:_MOST_SHOWN]]
        ],
    )


_MOST_SHOWN = 120
"""Letters of a formula."""


def warned(judged: JudgedTypes) -> StudyTable:
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
