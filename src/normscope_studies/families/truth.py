"""What models are wired like by their own source, written down by hand, and what the doctor said beside it."""

import csv
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

HOW_READ = (
    "by hand, from the forward functions of the classes that column `read` names, in transformers 5.23; a second time "
    "where the doctor said otherwise, which changed one row"
)
Judgement = Literal["right", "unnamed", "wrong", "wrong and sure"]
JUDGEMENTS: tuple[Judgement, ...] = ("right", "unnamed", "wrong", "wrong and sure")
_MIXING = ("mixer", "convolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWiring:
    """One model type by its source."""

    placements: Mapping[str, frozenset[str]]
    """By kind of sub-layer those that it has: names, or formulas where no name is registered. Of kinds that are not
    here nothing has been written down."""
    read: str
    """Names of the classes that say so."""
    warnings: frozenset[str]
    """Rules whose warnings are right of it as its authors meant it."""


@cache
def source_wirings() -> dict[str, SourceWiring]:
    """By model type."""
    lines = (files(__package__) / "truth.csv").read_text(encoding="utf-8").splitlines()
    found = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        kinds = {kind: row[kind] for kind in ("attention", "cross_attention", "feed_forward")}
        kinds |= dict.fromkeys(_MIXING, row["mixing"])
        found[row["type"]] = SourceWiring(
            placements={kind: frozenset(names.split("|")) for kind, names in kinds.items() if names},
            read=row["read"],
            warnings=frozenset(row["warnings"].split()),
        )
    return found


def judged_sublayer(sublayer: Mapping[str, Any], truth: Collection[str]) -> Judgement:
    """What the doctor said of sub-layers that are alike; a formula that has no name is right where it is the same."""
    name = sublayer["placement"]
    if (name or sublayer["formula"]) in truth:
        return "right"
    if not name:
        return "unnamed"
    return "wrong and sure" if sublayer["confidence"] == "sure" else "wrong"


def judged_model(row: Mapping[str, Any], truth: SourceWiring) -> Counter[Judgement]:
    """How many of a diagnosed model's sub-layers are which, those of kinds that are written down."""
    counts: Counter[Judgement] = Counter()
    for one in row["sublayers"]:
        if one["kind"] in truth.placements:
            counts[judged_sublayer(one, truth.placements[one["kind"]])] += one["count"]
    return counts


def false_warnings(row: Mapping[str, Any], truth: SourceWiring) -> list[str]:
    """Rules that warn of a model that is as its authors meant it, and are not right of it."""
    return sorted({rule for rule, _, _ in row["warnings"]} - truth.warnings)
