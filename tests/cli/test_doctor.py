"""`normscope doctor` as a user meets it: exit codes, what is printed and written, and what is
refused.
"""

import json
import math
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

from normscope.choosing.law import law
from normscope.cli import console as cli_stages
from normscope.cli.main import main
from normscope.doctor.diagnose import Diagnosis
from normscope.doctor.lint.linter import RULES
from normscope.doctor.result import Finding
from normscope.optim import OPTIMIZERS
from report.diagnoses import BETAS, DILUTED, FINAL_NORM, broken, healthy, with_stack

USABLE = "models.py:encoder"
MODELS = '''"""Models of a user's, none of which can be looked at but the first."""

import torch
from torch import nn

X = torch.ones(2, 5, 8)


def encoder(depth=2):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, depth, nn.LayerNorm(8), enable_nested_tensor=False)
    return model, torch.randn(2, 5, 8), lambda output: output.square().mean()

def with_optimizer():
    model, inputs, loss = encoder()
    return {"model": model, "inputs": inputs, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}

class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = encoder()[0]

class Raising(Around):
    def forward(self, x):
        return self.inner(x) @ torch.ones(3, 3)

class Deciding(Around):
    def forward(self, x):
        if self.inner(x).sum() > -1e9:
            raise RuntimeError("the sum is\\nlarge")
        return x

class Integers(Around):
    def forward(self, x):
        return self.inner(x).argmax(-1)

class Nothing(Around):
    def forward(self, x):
        self.inner(x)

def raising(): return Raising(), X
def deciding(): return Deciding(), X
def integers(): return Integers(), X
def nothing(): return Nothing(), X
def no_sum(): return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), X
def no_layers(): return nn.Sequential(nn.LayerNorm(8)), X
def misfit(): return encoder()[0], torch.ones(2, 5, 9)
def too_many(): return encoder()[0], (X, X, X, X, X, X)

def not_finite():
    model, *_ = encoder()
    model.layers[1].linear2.weight.data[0, 0] = float("nan")
    return model, X

def meta():
    with torch.device("meta"):
        return encoder()[0]
'''


class Called:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def call(monkeypatch, capsys, tmp_path) -> Callable[..., Called]:
    """`normscope doctor ARGUMENTS` within this process, in a folder with the user's models."""
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # A loaded machine makes every stage a slow one.
    monkeypatch.setattr(cli_stages, "_SHOWN_AFTER_SECONDS", 600.0)

    def run(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["normscope", "doctor", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Called(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def finding(monkeypatch) -> Callable[..., dict[str, Any]]:
    """Let the diagnosis be one of our making, and see what was asked for."""

    def prepare(
        *findings: Finding, data: Diagnosis | None = None, seconds: float = 0
    ) -> dict[str, Any]:
        asked: dict[str, Any] = {}

        def made_up(model: object, inputs: object, **options: Any) -> Diagnosis:
            time.sleep(seconds)
            asked.update(options, model=model, inputs=inputs)
            return replace(healthy(), findings=findings) if data is None else data

        module = ModuleType("normscope.doctor.diagnose")
        module.diagnose = made_up
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return asked

    return prepare


@pytest.mark.parametrize(
    ("findings", "fail_on", "code"),
    [
        ((), None, 0),
        ((BETAS,), None, 0),
        ((BETAS,), "info", 1),
        ((BETAS, DILUTED), None, 1),
        ((DILUTED,), "error", 0),
        ((DILUTED, FINAL_NORM), "error", 1),
        ((), "info", 0),
    ],
)
def test_the_exit_code_says_how_bad_it_is(call, finding, findings, fail_on, code):
    finding(*findings)
    assert call(USABLE, *(["--fail-on", fail_on] if fail_on else [])).code == code


def test_the_page_is_printed_and_nothing_else(call, finding):
    finding(FINAL_NORM, data=broken())
    called = call(USABLE)
    assert called.code == 1
    assert "missing-final-norm" in called.out
    assert "HomemadeGPT" in called.out
    assert called.err == ""


def test_json_alone_on_stdout(call, finding):
    data = with_stack(broken(), 0, end_square=math.inf)
    finding(FINAL_NORM, data=data)
    called = call(USABLE, "--json", "-")
    assert called.code == 1
    read = json.loads(called.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert read["stacks"][0]["end_square"] is None
    for key in ("target", "findings", "measured"):
        assert read[key] == json.loads(json.dumps(data.to_json()[key]))


def test_files_are_written_whole(call, finding, tmp_path):
    finding(data=broken())
    called = call(USABLE, "--json", "found.json", "--html", "found.html")
    assert called.code == 1
    assert "written: found.json" in called.out
    assert "written: found.html" in called.out
    assert json.loads((tmp_path / "found.json").read_text())["target"] == "HomemadeGPT"
    page = (tmp_path / "found.html").read_text()
    assert page.rstrip().endswith("</html>")
    assert "HomemadeGPT" in page
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix) == [
        "found.html",
        "found.json",
        "models.py",
    ]


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_where_no_file_can_be_is_said_before_the_work(call, finding, tmp_path, option):
    asked = finding()
    for place, said in (("missing/found", "its folder does not exist"), (".", "is a folder")):
        called = call(USABLE, option, place)
        assert called.code == 2
        assert said in called.err
        assert option in called.err
    assert asked == {}


def test_what_is_asked_of_the_doctor(call, finding):
    asked = finding()
    call(USABLE, "--set", "depth=3")
    assert len(asked["model"].layers) == 3
    assert float(asked["loss"](torch.tensor([1.0, 3.0]))) == 5.0
    assert (asked["optimizer"], asked["wanted_rate"], asked["advise"]) == ("adam", None, True)
    assert (asked["wanted_placement"], asked["loading"], asked["silenced"]) == ("pre-ln", None, ())
    call(USABLE, "--optimizer", "lion", "--rate", "1e-3", "--no-advice")
    assert (asked["optimizer"], asked["wanted_rate"], asked["advise"]) == ("lion", 1e-3, False)
    call("models.py:with_optimizer")
    assert isinstance(asked["optimizer"], torch.optim.SGD)
    call("models.py:with_optimizer", "--optimizer", "adamw")
    assert asked["optimizer"] == "adamw"


def test_the_best_rate_of_a_smaller_version_is_carried(call):
    called = call(
        USABLE,
        "--set",
        "depth=4",
        "--optimizer",
        "adamw",
        "--best-at",
        "5e-3:depth=1",
        "--json",
        "-",
    )
    advice = json.loads(called.out)["advice"]
    assert advice["carried"] == "from 5e-3, the best of width 8 with 2 sub-layers"
    assert advice["best_rate"] == pytest.approx(5e-3 * 4 ** law().sublayers)
    shown = call(
        USABLE, "--set", "depth=4", "--optimizer", "adamw", "--best-at", "5e-3:depth=1"
    ).out
    assert "learning rate with adamw, from a smaller version of this model" in " ".join(
        shown.split()
    )


def test_the_command_that_makes_a_rate_surer_is_one_that_runs(call, monkeypatch, tmp_path):
    batches = "def batches(): return [(torch.rand(2, 5, 8), torch.zeros(2, 5, dtype=torch.long))]\n"
    (tmp_path / "own model.py").write_text(
        f"{MODELS}\ndef alone(depth=2): return encoder(depth)[0]\n{batches}"
    )
    said = " ".join(call("own model.py:alone", "--optimizer", "adamw").out.split())
    command = re.search(r"70 % of the updates: `(normscope compare [^`]*)`", said)
    assert command, said
    monkeypatch.setattr(sys, "argv", [*shlex.split(command[1]), "--dry-run", "--out", "rates"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    cells = [
        tomllib.loads(file.read_text()) for file in (tmp_path / "rates" / "cells").glob("*.toml")
    ]
    low, usual, high = sorted({cell["optimizer"]["peak_lr"] for cell in cells})
    assert {cell["optimizer"]["name"] for cell in cells} == {"adamw"}
    assert (usual / low, high / usual) == pytest.approx((2, 2), rel=0.05)
    # Arguments of the function are the doctor's alone.
    assert "`--peak-lr " in " ".join(call("own model.py:alone", "--set", "depth=3").out.split())


def test_the_sizes_of_sample_inputs(call, finding, tmp_path):
    asked = finding()
    (tmp_path / "alone.py").write_text(
        "from torch import nn\n"
        "def model(): return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)\n"
    )
    call("alone.py:model")
    assert asked["inputs"][0].shape == (4, 128, 8)
    first = asked["inputs"][0]
    call("alone.py:model", "--tokens", "5", "--sequences", "3", "--seed", "1")
    assert asked["inputs"][0].shape == (3, 5, 8)
    call("alone.py:model")
    assert torch.equal(asked["inputs"][0], first)


def test_rules_are_silenced_by_the_project_and_by_hand(call, finding, tmp_path):
    asked = finding()
    first, second = (rule.id for rule in RULES[:2])
    (tmp_path / "pyproject.toml").write_text(f'[tool.normscope.doctor]\nsilence = ["{first}"]\n')
    call(USABLE, "--silence", second, "--silence", first)
    assert asked["silenced"] == (first, second)
    called = call(USABLE, "--silence", second[:-1])
    assert (called.code, called.out) == (2, "")
    assert f"did you mean {second!r}?" in called.err


def test_rules_are_listed(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = call("--rules").out.splitlines()
    assert len(lines) == len(RULES) > 0
    for line, rule in zip(lines, RULES, strict=True):
        assert line.split()[:2] == [rule.id, rule.severity]
        assert line.endswith(rule.title)


def test_slow_stages_are_named_on_stderr(call, finding, monkeypatch):
    monkeypatch.setattr(cli_stages, "_SHOWN_AFTER_SECONDS", 0.05)
    finding(seconds=0.5)
    called = call(USABLE, "--json", "-")
    assert "looking at TransformerEncoder (models.py:encoder)" in called.err
    json.loads(called.out)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "name a TARGET"),
        ([USABLE, "--fail-on", "fatal"], "--fail-on fatal: choose one of info, warning, error"),
        (
            [USABLE, "--optimizer", "adan"],
            f"--optimizer adan: choose one of {', '.join(OPTIMIZERS)}",
        ),
        ([USABLE, "--rate", "0"], "--rate must be positive"),
        ([USABLE, "--rate", "inf"], "--rate must be positive"),
        (
            [USABLE, "--best-at", "2e-3"],
            "--best-at 2e-3: give the best peak rate of a smaller version",
        ),
        ([USABLE, "--best-at", "0:depth=1"], "--best-at 0:depth=1: give the best peak rate"),
        ([USABLE, "--best-at", "2e-3:deep=1"], "(depth=2) has no such argument"),
        ([USABLE, "--best-at", "2e-3:depth=1", "--no-advice"], "--best-at is for advice"),
        (
            [USABLE, "--best-at", "2e-3:depth=1", "--structure-only"],
            "--structure-only takes no --best-at",
        ),
        ([USABLE, "--tokens", "0"], "--tokens must be at least 2"),
        ([USABLE, "--import", "missing.py"], "no such file"),
        (["missing.py:encoder"], "no such file: missing.py"),
        (["models.py:encodre"], "did you mean 'encoder'?"),
    ],
)
def test_mistakes_in_options(call, arguments, expected):
    called = call(*arguments)
    assert (called.code, called.out) == (2, "")
    assert expected in called.err
    assert called.err.count("\n") == 1


def test_import_normscope_stays_quick():
    code = "import sys, normscope; print('torch' in sys.modules, hasattr(normscope, 'nothing'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


UNUSABLE = {
    "no_sum": "no residual stream found",
    "no_layers": "no residual stream found",
    "raising": "the forward pass raised RuntimeError",
    "deciding": "the forward pass raised RuntimeError: the sum is large",
    "misfit": "the forward pass raised",
    "too_many": "the forward pass raised",
    "integers": "integers only",
    "nothing": "no tensor, but NoneType",
    "meta": "meta device",
}


@pytest.mark.parametrize("function", UNUSABLE)
def test_models_that_cannot_be_looked_at_are_one_line(call, function):
    called = call(f"models.py:{function}", "--no-advice")
    assert (called.code, called.out) == (2, "")
    assert UNUSABLE[function] in called.err
    assert called.err.count("\n") == 1
    assert f"models.py:{function}" in called.err


def test_weights_that_are_not_finite_are_a_finding(call):
    called = call("models.py:not_finite")
    assert (called.code, called.err) == (1, "")
    assert "nonfinite-weights" in called.out
    assert "layers.1.linear2.weight" in called.out


def test_an_error_in_forward_comes_with_its_line(call, tmp_path):
    line = MODELS.splitlines().index('            raise RuntimeError("the sum is\\nlarge")') + 1
    assert f"{tmp_path / 'models.py'}, line {line}" in call("models.py:deciding").err
