"""What every study shares: settings in scales, measurements that are not made twice, results and their page."""

import dataclasses
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from ... import __version__
from ...errors import UserError
from ...files import disk_errors, write_atomically
from ...report.study.contents import Claim, StudyFigure, StudyPage, StudyTable
from ...report.study.page import write_study
from ...train.environment import describe

_WORTH_A_LINE_SECONDS = 1.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question, the sizes it can be asked at, and what answers it.

    A configuration is a frozen dataclass, of keyword arguments alone, whose __post_init__ raises ValueError for what
    cannot be measured.
    """

    name: str
    title: str
    question: str
    scales: Mapping[str, Any]
    """By name, such as smoke, cpu and paper: a configuration each."""
    run: Callable[[Any, "Pieces"], Findings]


@dataclass(slots=True)
class Pieces:
    """Measurements of a study, each in a file of its own: what a folder holds already is read, not made again."""

    folder: Path
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None
    say: Callable[[str], None] = lambda line: None
    made: list[str] = field(default_factory=list)
    """Names of those that were made by this call."""

    def get(self, name: str, asked: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """The piece of that name, if it was made for just these settings; else `make()`, kept before it is returned.

        name: may have one folder in it ("post-ln/seed-1"). asked: everything its values depend on, as plain values.
        """
        file = self.folder / "pieces" / f"{name}.json"
        wanted = json.loads(as_json({**asked, "normscope": __version__}))
        if file.is_file():
            there = json.loads(file.read_text(encoding="utf-8"))
            if there["asked"] == wanted:
                return there["value"]
        started = time.monotonic()
        value = json.loads(as_json(make()))
        with disk_errors(f"writing into {self.folder}"):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, as_json({"asked": wanted, "value": value}))
        self.made.append(name)
        if (seconds := time.monotonic() - started) >= _WORTH_A_LINE_SECONDS:
            self.say(f"{name}: measured in {seconds:.0f} s")
        return value


def run_study(study: Study, config: Any, pieces: Pieces, *, command: str) -> tuple[Findings, Path]:
    """Measure what is missing, then write results.json, the figures and report.html; returns the page's path too."""
    with disk_errors(f"writing into {pieces.folder}"):
        pieces.folder.mkdir(parents=True, exist_ok=True)
    found = study.run(config, pieces)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    environment = environment_of()
    page = StudyPage(
        title=study.title,
        question=study.question,
        created=created,
        conditions=found.conditions,
        claims=found.claims,
        figures=found.figures,
        tables=found.tables,
        commands=[command],
        environment=list(environment.items()),
    )
    results = {
        "title": study.title,
        "created": created,
        "normscope": __version__,
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


def configured(config: Any, overrides: Sequence[str]) -> Any:
    """The configuration with KEY=VALUE changes, values as in JSON or plain text. Raises UserError."""
    table = json.loads(json.dumps(dataclasses.asdict(config)))
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or key not in table:
            raise UserError(f"--set takes KEY=VALUE with a key of {', '.join(table)}; got {override!r}")
        try:
            table[key] = json.loads(text)
        except ValueError:
            table[key] = text
    try:
        return TypeAdapter(type(config)).validate_json(json.dumps(table))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise UserError(f"{where + ': ' if where else ''}{problem['msg'].removeprefix('Value error, ')}") from None


def environment_of() -> dict[str, str]:
    """What the numbers were made on, without what a study has in its settings."""
    found = describe(device=torch.device("cpu"), seed=0, data_fingerprint="", fast_matmul=False)
    dropped = ("seed", "data_fingerprint", "accelerator", "fast_matmul")
    return {key: str(value) for key, value in found.items() if key not in dropped}


def as_json(value: Any) -> str:
    """Indented, a list of numbers on one line; JSON has neither infinity nor NaN, so these are null."""
    text = json.dumps(plain(value), indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([-\d.e+,\snul]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text) + "\n"


def plain(value: Any) -> Any:
    """Built-in types alone: arrays become lists, floats get six digits, what is not finite None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
