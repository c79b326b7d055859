"""Findings as lines that other programs read: annotations of GitHub's workflows, and what gcc's readers know."""

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..doctor.result import Finding

FORMATS = ("github", "gcc")
_LEVELS = {"info": "notice", "warning": "warning", "error": "error"}
"""What GitHub calls a severity."""


def annotations(findings: Iterable["Finding"], target: str, form: str) -> list[str]:
    """A line for each finding, at the function that `target` names, as file.py:function does; at no place for others.

    form: "github" for the commands of a workflow's log, "gcc" for `file:line: severity: message [rule]`, which editors
    and problem matchers read.
    """
    place = _place_of(target)
    return [_github(finding, place) if form == "github" else _gcc(finding, target, place) for finding in findings]


def _github(finding: "Finding", place: tuple[str, int] | None) -> str:
    properties = {} if place is None else {"file": place[0], "line": str(place[1])}
    properties["title"] = f"{finding.id} at {finding.where}" if finding.where else finding.id
    named = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    return f"::{_LEVELS[finding.severity]} {named}::{_escaped(f'{finding.message} To mend it: {finding.fix}')}"


def _escaped(text: str, more: str = "") -> str:
    """As the runner reads it: signs that end a command or a property are written by their number."""
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def _gcc(finding: "Finding", target: str, place: tuple[str, int] | None) -> str:
    at = target if place is None else f"{place[0]}:{place[1]}"
    severity = "note" if finding.severity == "info" else str(finding.severity)
    where = f"{finding.where}: " if finding.where else ""
    return f"{at}: {severity}: {where}{' '.join(finding.message.split())} [{finding.id}]"


def _place_of(target: str) -> tuple[str, int] | None:
    """File and line of the function; line 1 where the file defines it in another way, such as by an import."""
    file, _, function = target.rpartition(":")
    if not file.endswith(".py"):
        return None
    body = ast.parse(Path(file).expanduser().read_text(encoding="utf-8")).body
    lines = [one.lineno for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == function]
    return file, lines[-1] if lines else 1
