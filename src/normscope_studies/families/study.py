"""The model types of transformers: which the doctor diagnoses and names, and in which it finds an
error.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from normscope.adapters.hugging_face import load_transformers
from normscope.report.svg import HUES, INK, house_style, to_svg

from ..engine.checks import check_least, check_positive
from ..engine.claims import share_claim
from ..engine.page import Claim, Findings, StudyFigure, StudyTable, TableCell, table
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from .judging import HOW_READ, judged_claims, judged_counts, source_wirings, unlike_source, warned
from .measure import MODES, import_packages, looked_at, measured, other_models
from .small import families


@dataclass(frozen=True, slots=True, kw_only=True)
class _FamiliesConfig:
    """One small model of each type, with initial weights. Raises ValueError."""

    families: tuple[str, ...] = ()
    """Model types such as gpt2; none for all that transformers has."""
    every: int = 1
    """The interval of types in alphabetical order: 4 looks at a quarter of them."""
    tokens: int = 12
    sequences: int = 2
    largest: int = 30_000_000
    """Parameters; a model whose configuration cannot be made smaller is left out."""
    limit_seconds: float = 40.0
    """Seconds of the processor, for one type."""
    seed: int = 0
    mode: str = "float32"
    """float32, autocast or bfloat16."""
    shuffled: int | None = None
    """The seed of a random order in which types are looked at; None for the alphabet's. Whatever is
    reached of a random order is a sample of all."""
    first: int | None = None
    """How many are looked at of that order; None for all."""

    def __post_init__(self) -> None:
        check_least(self, tokens=2, every=1, sequences=1, largest=1, seed=0)
        check_positive(self, "limit_seconds")
        if self.mode not in MODES:
            raise ValueError(f"mode: {self.mode!r} is none of {', '.join(MODES)}")
        if self.first is not None and self.first < 1:
            raise ValueError(f"first: must be at least 1, got {self.first}")


def stages_svg(counts: Sequence[tuple[str, int]]) -> str:
    """counts: of model types by what became of them, in the order from top to bottom."""
    with house_style():
        figure = Figure(figsize=(9, 0.42 * len(counts) + 1.1), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        names, values = zip(*counts, strict=True)
        hues = [HUES[0] if name.startswith("diagnosed") else INK for name in names]
        bars = axes.barh(range(len(values)), values, color=hues, alpha=0.85, height=0.65)
        axes.bar_label(bars, padding=4)
        axes.set_yticks(range(len(names)), labels=names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("model types")
        words = ", ".join(f"{name} {value}" for name, value in counts)
        return to_svg(figure, title="What became of every model type", desc=words)


_ASKED = ("tokens", "sequences", "largest", "limit_seconds", "seed", "mode")
_Rows = Mapping[str, Mapping[str, Any]]


def run(config: _FamiliesConfig, pieces: Pieces) -> Findings:
    """One piece a model type."""
    version = load_transformers().__version__
    names = _asked_for(config)
    # What every model imports is imported before the first fork, or every child would import it
    # again.
    looked_at(
        family="gpt2", **{name: getattr(config, name) for name in _ASKED if name != "limit_seconds"}
    )
    import_packages()
    rows: dict[str, Mapping[str, Any]] = {}
    for family in pieces.each("model types", names):
        settings = {"family": family, **{name: getattr(config, name) for name in _ASKED}}
        rows[family] = pieces.get(
            family, {**settings, "transformers": version}, measured, **settings
        )
    diagnosed = {family: row for family, row in rows.items() if row["stage"] == "diagnosed"}
    known = source_wirings()
    judged = {family: (row, known[family]) for family, row in diagnosed.items() if family in known}
    counts = _counts(rows) | judged_counts(judged)
    return Findings(
        conditions=_conditions(config, version),
        claims=[*_claims(diagnosed), *judged_claims(judged)] if diagnosed else [],
        figures=[
            StudyFigure(
                name="stages",
                title="What became of every model type",
                caption=(
                    "Of the types that the installed transformers knows: those that could be built "
                    "small, given inputs and diagnosed, and where the others ended."
                ),
                svg=stages_svg(list(_counts(rows).items())),
            )
        ],
        tables=[
            _by_source(rows),
            StudyTable(
                title="Model types in which an error is found",
                columns=("model type", "rule", "where", "message"),
                rows=[
                    [family, *error] for family, row in diagnosed.items() for error in row["errors"]
                ],
            ),
            unlike_source(judged),
            warned(judged),
            _ended(rows),
        ],
        data={"counts": counts, "sources": _of_sources(rows), "families": rows},
    )


def _asked_for(config: _FamiliesConfig) -> Sequence[str]:
    names = [*(config.families or (*families(), *other_models()))][:: config.every]
    if config.shuffled is not None:
        random.Random(config.shuffled).shuffle(names)
    return names[: config.first]


def _of_sources(rows: _Rows) -> dict[str, dict[str, int]]:
    """Counts by library how many of its models came how far."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for family, row in rows.items():
        library = (
            family.partition(":")[0].partition(",")[0]
            if family in other_models()
            else "transformers"
        )
        found.setdefault(library, {})[family] = row
    return {library: _counts(some) for library, some in found.items()}


_SHOWN = ("looked at", "diagnosed", "diagnosed, and every stack named", "diagnosed, with an error")


def _by_source(rows: _Rows) -> StudyTable:
    written: list[list[TableCell]] = []
    for library, counts in _of_sources(rows).items():
        shown = [counts[name] for name in _SHOWN]
        written.append([library, *shown, counts.get("traceback", 0)])
    return StudyTable(
        title="By library", columns=("library", *_SHOWN, "the doctor's traceback"), rows=written
    )


def _counts(rows: _Rows) -> dict[str, int]:
    diagnosed = [row for row in rows.values() if row["stage"] == "diagnosed"]
    stages = Counter(row["stage"] for row in rows.values())
    del stages["diagnosed"]
    return {
        "looked at": len(rows),
        "diagnosed": len(diagnosed),
        "diagnosed, and every stack named": sum(_is_named(row) for row in diagnosed),
        "diagnosed, with an error": sum(bool(row["errors"]) for row in diagnosed),
        "diagnosed, with a warning": sum(bool(row["warnings"]) for row in diagnosed),
        **stages,
    }


def _is_named(row: Mapping[str, Any]) -> bool:
    return bool(row["placements"]) and all(row["placements"])


def _claims(diagnosed: _Rows) -> list[Claim]:
    return [
        share_claim(
            "named",
            "every stack of a model that is diagnosed has the name of a registered placement",
            source="docs/doctor.md, How identification works",
            of="model types",
            holds={family: _is_named(row) for family, row in diagnosed.items()},
        ),
        share_claim(
            "no error",
            "no error is found in a model as its authors meant it",
            source="docs/doctor.md, Rules",
            of="model types",
            holds={family: not row["errors"] for family, row in diagnosed.items()},
        ),
    ]


def _ended(rows: _Rows) -> StudyTable:
    return table(
        "Model types that were not diagnosed",
        [(family, row) for family, row in rows.items() if row["stage"] != "diagnosed"],
        [
            ("model type", lambda one: one[0]),
            ("where it ended", lambda one: one[1]["stage"]),
            ("why", lambda one: one[1].get("why", "")),
        ],
    )


def _conditions(config: _FamiliesConfig, version: str) -> dict[str, str]:
    return {
        "Models": (
            f"the main model of every type of transformers {version}, its defaults made small, and "
            "models of timm, x-transformers, vit-pytorch and torch as others.toml says; at most "
            f"{config.largest:,} parameters"
        ),
        "Inputs": (
            f"random: {config.sequences} sequences of {config.tokens} tokens, or images and audio "
            "as the type asks"
        ),
        "Types": f"{len(config.families)} that were asked for"
        if config.families
        else "all"
        if config.every == 1
        else f"one in {config.every}, in alphabetical order, of each library",
        "Precision": config.mode,
        "Weights": "initial, as the type draws them",
        "Limit": (
            f"{config.limit_seconds:g} seconds of the processor for one type, in a process of its "
            "own"
        ),
        "Truth": f"{len(source_wirings())} types, read {HOW_READ}",
        "Gradient normalisation": "of the model's own loss, or of one on random targets",
        "Logarithm": "natural",
        "Seeds": f"{config.seed}",
        "Spread": "intervals are Wilson's for shares; types often share their code, and are not "
        "independent",
    }


STUDY = Study(
    title="All model types of transformers, small and untrained",
    question=(
        "Of the model types that the installed transformers has, how many does the doctor diagnose "
        "at a small size, how many of these does it name, and does it find errors in models that "
        "are as their authors meant them?"
    ),
    help="Which models of transformers does the doctor name?",
    scales=scales(
        _FamiliesConfig, smoke={"families": ("bert", "gpt2", "t5")}, paper={"limit_seconds": 600.0}
    ),
    run=run,
)
