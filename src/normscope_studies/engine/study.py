"""The frame that every study shares: a question, the sizes it can be asked at, and the page and
data that answer it.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from normscope.compare.page import refuse_other_report
from normscope.engines.choosing import LOCAL, EngineSettings
from normscope.errors import UserError
from normscope.files import disk_errors, make_folders, write_over
from normscope.limits.kinds import RESULTS
from normscope.provenance import provenance
from normscope.report.words import counted, significant
from normscope.settings.tables import as_table, put, read_override
from normscope.settings.validation import validated
from normscope.train.device import describe

from .judging import tally
from .page import Claim, Findings, write_study
from .pieces import Pieces, as_json
from .planning import PlanEnds, StudyPlan, plan_lines

PACKAGE = __name__.partition(".")[0]
"""The package that the numbers of a study depend on beside the tool."""
TRIAL = "smoke"
"""The scale that shows that a study works and no more: the page, the data and the terminal say that
its verdicts mean nothing."""


def scales(
    config: Callable[..., Any],
    *,
    smoke: Mapping[str, Any],
    paper: Mapping[str, Any],
    every: Mapping[str, Any] = {},
    more: Mapping[str, Mapping[str, Any]] = {},
) -> dict[str, Any]:
    """Returns the scales of a study whose configuration has the settings of cpu; smoke and paper
    set what they differ in.

    more: what scales of the study's own set, by their names.

    config: a frozen dataclass, of keyword arguments alone, whose __post_init__ raises ValueError
    for what cannot be measured. every: what it has no default for.
    """
    return {
        TRIAL: config(**{**every, **smoke}),
        "cpu": config(**every),
        **{name: config(**{**every, **settings}) for name, settings in more.items()},
        "paper": config(**{**every, **paper}),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAgain:
    """The judgement of numbers that were measured before, by today's rules."""

    claims: Sequence[Claim]
    data: Mapping[str, Any]
    """The numbers worked out from the measurements, for results.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question, the sizes it can be asked at, and what answers it."""

    title: str
    question: str
    """One or two sentences."""
    help: str
    """For the list of studies: the question in at most 51 characters, a line of 80 columns."""
    scales: Mapping[str, Any]
    """Configurations by name: smoke, cpu and paper, and those of the study's own."""
    run: Callable[[Any, Pieces], Findings]
    planned: Callable[[Any, Pieces], StudyPlan] | None = None
    """The function that plans all that it would train; None where only the first stage is known
    beforehand, which `run` shows.
    """
    reads_checkpoints: bool = False
    """True where it looks at checkpoints of its trainings, and not at what they logged alone."""
    judged_again: Callable[[Any, Mapping[str, Any]], JudgedAgain] | None = None
    """The function that judges anew, from a configuration and what its results.json holds; None for
    a study whose measurements are not all in there.
    """

    def answer(
        self,
        *,
        scale: str,
        settings: Sequence[str],
        out: Path,
        processes: int,
        engine: EngineSettings = LOCAL,
        watch: Callable[[str, int, int], None],
        say: Callable[[str], None],
        command: str,
        dry_run: bool = False,
    ) -> list[str]:
        """Measure what `out` lacks, write the page and the data, and return what the terminal shows
        of them.

        settings: KEY=VALUE changes of the scale. processes, engine: as of `Pieces`. dry_run: return
        what would be trained and what that costs, and train and write nothing. Raises UserError.
        """
        if scale not in self.scales:
            raise UserError(f"--scale must be one of {', '.join(self.scales)}, got {scale!r}")
        config = configured(self.scales[scale], settings)
        if dry_run:
            return [f"{self.title}, scale {scale}", *plan_lines(self.plan(config, out))]
        pieces = Pieces(
            out,
            watch=watch,
            say=say,
            processes=processes,
            reads_checkpoints=self.reads_checkpoints,
            engine=engine,
        )
        found, page = run_study(self, config, pieces, command=command, scale=scale)
        return [*_lines(self.title, found, _caution(scale)), f"page: {page}"]

    def plan(self, config: Any, out: Path) -> StudyPlan:
        """Returns the trainings that the folder `out` lacks. Raises UserError as `run` does."""
        pieces = Pieces(out, plan=[], reads_checkpoints=self.reads_checkpoints)
        if self.planned is not None:
            return self.planned(config, pieces)
        ends = ""
        try:
            self.run(config, pieces)
        except PlanEnds as end:
            ends = end.words
        return StudyPlan(stages=pieces.plan or [], ends=ends)


def run_study(
    study: Study, config: Any, pieces: Pieces, *, command: str, scale: str = ""
) -> tuple[Findings, Path]:
    """Measure what is missing, then write results.json, the figures and report.html; returns the
    page's path too.

    scale: the one that `config` comes from, if any.
    """
    with disk_errors(f"writing into {pieces.folder}"):
        make_folders(pieces.folder)
        refuse_other_report(pieces.folder)
    found = study.run(config, pieces)
    results = {
        "title": study.title,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **provenance(PACKAGE),
        "scale": scale,
        "caution": _caution(scale),
        "settings": dataclasses.asdict(config),
        "conditions": dict(found.conditions),
        "claims": [dataclasses.asdict(claim) for claim in found.claims],
        **found.data,
        "commands": [command],
        "processor_hours": pieces.processor_hours,
        "environment": environment_of(),
    }
    if (hours := pieces.processor_hours) is not None:
        found = dataclasses.replace(
            found, conditions={**found.conditions, "Processor hours": significant(hours, 3)}
        )
    with disk_errors(f"writing into {pieces.folder}"):
        write_over(pieces.folder / "results.json", as_json(results), RESULTS)
        file = write_study(
            found, results | {"question": study.question, "made_by": _made_by()}, pieces.folder
        )
    return found, file


def _caution(scale: str) -> str:
    """Returns what a reader must know of the verdicts at that scale; empty where they mean what
    they say.
    """
    if scale != TRIAL:
        return ""
    return (
        f"Scale {scale} is so small that its verdicts mean nothing: they only show that the study "
        "works."
    )


def _made_by() -> str:
    """Returns the program in a line, with the first digits of its hashes; the environment has them
    whole.
    """
    made = provenance(PACKAGE)
    commit, _, modified = made["commit"].partition(" ")
    where = f", commit {' '.join(filter(None, [commit[:12], modified]))}" if commit else ""
    return f"NormScope {made['normscope']}, source {made['source_sha256'][:12]}{where}"


def environment_of() -> dict[str, str]:
    """Returns the environment in which the numbers were made, without what a study has in its
    settings.
    """
    found = describe(device=torch.device("cpu"), seed=0, data_fingerprint="", fast_matmul=False)
    dropped = ("seed", "data_fingerprint", "accelerator", "fast_matmul")
    return {
        key: str(value)
        for key, value in (found | provenance(PACKAGE)).items()
        if key not in dropped
    }


def configured(config: Any, overrides: Sequence[str]) -> Any:
    """Returns the configuration with KEY=VALUE changes, values as in TOML or plain text. Raises
    UserError.
    """
    table = as_table(config)
    for override in overrides:
        put(table, *read_override(override))
    return validated(type(config), table)


def _lines(title: str, found: Findings, caution: str) -> list[str]:
    """Returns the lines that the terminal shows: conditions, every claim with what was measured,
    and the count of verdicts.

    A caution stands where reading begins, and again where a long text has left the reader.
    """
    warned = [caution] if caution and found.claims else []
    lines = [
        title,
        *warned,
        *(f"  {key}: {value}" for key, value in found.conditions.items()),
        *found.lines,
    ]
    for claim in found.claims:
        lines += [
            f"{claim.name}: {claim.verdict}{f' ({claim.conditions})' if claim.conditions else ''}",
            f"  claim:    {claim.statement} [{claim.source}]",
            f"  measured: {claim.found}",
        ]
    if found.claims:
        lines.append(
            f"{counted(len(found.claims), 'claim')}: "
            f"{tally(claim.verdict for claim in found.claims)}."
        )
    return [*lines, *warned]
