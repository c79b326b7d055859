"""What every study shares: a question, the sizes it can be asked at, and the page and data that answer it."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from normscope.files import disk_errors, make_folders, write_atomically
from normscope.provenance import provenance
from normscope.train.device import describe

from .about import About
from .contents import Claim, StudyFigure, StudyPage, StudyTable
from .page import write_study
from .pieces import Pieces
from .plain import as_json
from .scale import Scale

PACKAGE = __name__.partition(".")[0]
"""What the numbers of a study depend on beside the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a study found: its page, and its data."""

    conditions: Sequence[tuple[str, str]]
    """At least: gradient normalisation, logarithm, tokens, seeds and spread."""
    claims: Sequence[Claim]
    figures: Sequence[StudyFigure]
    tables: Sequence[StudyTable]
    data: Mapping[str, Any]
    """For results.json: plain values; numbers that are not finite become null."""
    lines: Sequence[str] = ()
    """For the terminal, in place of claims where a study makes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question, the sizes it can be asked at, and what answers it."""

    about: About
    scales: Mapping[str, Scale]
    """By name: smoke, cpu and paper."""
    run: Callable[[Any, Pieces], Findings]

    def caution(self, scale: str) -> str:
        """What a reader must know of the verdicts at that scale; empty where they mean what they say."""
        if not scale or self.scales[scale].decides:
            return ""
        return f"Scale {scale} is so small that its verdicts mean nothing: they only show that the study works."


def run_study(study: Study, config: Any, pieces: Pieces, *, command: str, scale: str = "") -> tuple[Findings, Path]:
    """Measure what is missing, then write results.json, the figures and report.html; returns the page's path too.

    scale: the one that `config` comes from, if any.
    """
    with disk_errors(f"writing into {pieces.folder}"):
        make_folders(pieces.folder)
    found = study.run(config, pieces)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    environment, caution = environment_of(), study.caution(scale)
    page = StudyPage(
        title=study.about.title,
        question=study.about.question,
        created=created,
        made_by=_made_by(),
        caution=caution,
        conditions=found.conditions,
        claims=found.claims,
        figures=found.figures,
        tables=found.tables,
        commands=[command],
        environment=list(environment.items()),
    )
    results = {
        "title": study.about.title,
        "created": created,
        **provenance(PACKAGE),
        "scale": scale,
        "caution": caution,
        "settings": dataclasses.asdict(config),
        "conditions": dict(found.conditions),
        "claims": [dataclasses.asdict(claim) for claim in found.claims],
        **found.data,
        "commands": [command],
        "environment": environment,
    }
    with disk_errors(f"writing into {pieces.folder}"):
        write_atomically(pieces.folder / "results.json", as_json(results))
        file = write_study(page, pieces.folder)
    return found, file


def _made_by() -> str:
    """The program in a line, with the first digits of its hashes; the environment has them whole."""
    made = provenance(PACKAGE)
    commit, _, modified = made["commit"].partition(" ")
    where = f", commit {' '.join(filter(None, [commit[:12], modified]))}" if commit else ""
    return f"NormScope {made['normscope']}, source {made['source_sha256'][:12]}{where}"


def environment_of() -> dict[str, str]:
    """What the numbers were made on, without what a study has in its settings."""
    found = describe(device=torch.device("cpu"), seed=0, data_fingerprint="", fast_matmul=False)
    dropped = ("seed", "data_fingerprint", "accelerator", "fast_matmul")
    return {key: str(value) for key, value in (found | provenance(PACKAGE)).items() if key not in dropped}
