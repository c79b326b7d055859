"""Findings as lines for other programs, and the GitHub Action that prints them."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from normscope.doctor.report.card import annotations
from normscope.doctor.result import Finding, Severity

ROOT = Path(__file__).parents[2]
MODELS = """
from torch import nn


def encoder(norm):
    layers = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True) for _ in range(2)]
    model = nn.TransformerEncoder(layers[0], 2, norm=norm, enable_nested_tensor=False)
    model.layers = nn.ModuleList(layers)  # torch copies the first, weights and all
    return model


def healthy():
    return encoder(nn.LayerNorm(32))


def without_the_last_norm():
    return encoder(None)
"""  # noqa: E501


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


def test_what_steers_a_workflow_is_no_part_of_a_message(models: Path) -> None:
    """The runner ends a command at a line's end and a property at a comma or colon."""
    finding = Finding(
        id="a-rule",
        severity=Severity.INFO,
        where="h.0: a, b",
        message="50 %\n::error::no",
        fix="put\rit back",
    )
    target = f"{models / 'models.py'}:healthy"
    (github,) = annotations([finding], target, "github")
    assert github.startswith("::notice file=")
    assert len(github.splitlines()) == 1
    assert "title=a-rule at h.0%3A a%2C b::50 %25%0A::error::no. To fix it: put%0Dit back" in github
    (gcc,) = annotations([finding], target, "gcc")
    assert gcc == f"{models / 'models.py'}:12: note: h.0: a, b: 50 % ::error::no [a-rule]"
    (elsewhere,) = annotations([finding], "GPT2Config", "github")
    assert elsewhere.startswith("::notice title=")


def steps() -> dict[str, dict[str, object]]:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["using"] == "composite"
    return {step["name"]: step for step in action["runs"]["steps"]}


def test_inputs_reach_the_action_by_its_environment_alone() -> None:
    """An expression in a script would be pasted into it: text of a pull request could be a
    command.
    """
    for step in steps().values():
        assert "${{" not in str(step["run"])
        assert step["shell"] == "bash"


def diagnosed(models: Path, function: str) -> subprocess.CompletedProcess[str]:
    """The action's step, run as the runner does."""
    binaries = models / "bin"
    binaries.mkdir(exist_ok=True)
    program = binaries / "normscope"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m normscope "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "TARGET": f"models.py:{function}",
        "FAIL_ON": "warning",
        "PAGE": "doctor.html",
        "GITHUB_STEP_SUMMARY": str(models / "summary.md"),
        "RUNNER_TEMP": str(models / "bin"),
    }
    script = str(steps()["Diagnose"]["run"])
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=models, env=environment, capture_output=True, text=True, check=False
    )


def test_the_action_writes_over_no_file_of_the_checkout(models: Path) -> None:
    (models / "doctor.log").write_text("the repository's own\n")
    before = {path.name for path in models.iterdir()}
    diagnosed(models, "without_the_last_norm")
    assert (models / "doctor.log").read_text() == "the repository's own\n"
    new = {path.name for path in models.iterdir()} - before
    assert new <= {"bin", "doctor.html", "summary.md", "__pycache__"}


def test_the_action_fails_annotates_and_keeps_the_page_where_a_model_is_wired_wrongly(
    models: Path,
) -> None:
    wrong = diagnosed(models, "without_the_last_norm")
    assert wrong.returncode == 1, wrong.stderr
    (line,) = re.findall(r"^::(?:warning|error) .*$", wrong.stdout, re.M)
    assert line.startswith("::warning file=models.py,line=8,title=missing-final-norm")
    summary = (models / "summary.md").read_text()
    assert "missing-final-norm" in summary
    assert "::warning" not in summary
    assert "missing-final-norm" in (models / "doctor.html").read_text()


@pytest.mark.thorough
def test_the_action_passes_a_healthy_model_and_one_that_is_absent_is_a_mistake(
    models: Path,
) -> None:
    healthy = diagnosed(models, "healthy")
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert not re.findall(r"^::(?:warning|error)", healthy.stdout, re.M)
    absent = diagnosed(models, "nothing_of_this_name")
    assert absent.returncode == 2
    assert "nothing_of_this_name" in absent.stderr


def test_the_problem_matcher_of_the_manual_reads_what_is_printed() -> None:
    manual = (Path(__file__).parents[2] / "docs/doctor.md").read_text(encoding="utf-8")
    task = json.loads(re.findall(r"```json\n(.+?)```", manual, re.DOTALL)[0])
    pattern = task["problemMatcher"]["pattern"]
    target = f"{Path(__file__)}:test_the_problem_matcher_of_the_manual_reads_what_is_printed"
    finding = Finding(
        id="a-rule", severity=Severity.WARNING, where="h.0", message="a [b]: 3 of 4", fix="do"
    )
    (line,) = annotations([finding], target, "gcc")
    found = re.fullmatch(pattern["regexp"], line)
    assert found is not None
    assert found[pattern["file"]] == str(Path(__file__))
    assert int(found[pattern["line"]]) > 1
    assert found[pattern["severity"]] == "warning"
    assert found[pattern["message"]] == "h.0: a [b]: 3 of 4"
    assert found[pattern["code"]] == "a-rule"
