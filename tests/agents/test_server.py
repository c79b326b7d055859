"""A program talks to `normscope mcp` as an agent does, by the official SDK's client: it does what
the skill file says, is wrong in every way, and tries to leave the folder.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from normscope.agents.skill import instructions, skill

pytest.importorskip("mcp", reason="the server takes the MCP SDK, which is not installed")

from agents.playing import Answer, Call, Session, session

TOOLS = {"diagnose", "explain_log", "predict", "choose", "transplant", "compare"}
MODEL = """
import torch
from parts import Block
from torch import nn

print("a line of the model's own on standard output")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))
        self.head = nn.Linear(16, 11)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build():
    return Model()


def broken():
    raise RuntimeError("two lines\\nof an error")


def batches(number):
    ids = torch.randint(11, (4, 9), generator=torch.Generator().manual_seed(number))
    return ids[:, :-1], ids[:, 1:]
"""
PARTS = """
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm_1 = nn.LayerNorm(width)
        self.norm_2 = nn.LayerNorm(width)

    def forward(self, x):
        x = self.norm_1(x + self.attention(x, x, x, need_weights=False)[0])
        return self.norm_2(x + self.ffn(x))
"""


def laid(folder: Path) -> Path:
    """A user's folder: a Post-LN in two files, and the log of a training that rose and stayed."""
    root = folder / "root"
    root.mkdir()
    (root / "my_model.py").write_text(MODEL)
    (root / "parts.py").write_text(PARTS)
    losses = [5 - 0.05 * update if update < 40 else 9.0 for update in range(1, 61)]
    rows = [f"{update},{loss},0.001" for update, loss in enumerate(losses, 1)]
    (root / "log.csv").write_text("\n".join(["step,loss,lr", *rows]) + "\n")
    return root


def calls_of(text: str) -> list[Call]:
    """The calls that a page shows."""
    found = []
    for block in re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        call = json.loads(block)
        if "tool" in call:
            found.append((call["tool"], call["arguments"]))
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session]:
    """A folder, and a session that makes every call of the skill file in it."""
    folder = tmp_path_factory.mktemp("agent")
    root = laid(folder)
    return root, session(root, calls_of(skill()), folder / "said")


def answer_of(told: tuple[Path, Session], tool: str) -> str:
    """The answer to the skill file's call of a tool."""
    names = [name for name, _ in calls_of(skill())]
    answer = told[1].answers[names.index(tool)]
    assert not answer.is_error, answer.text
    assert "Traceback" not in answer.text
    return answer.text


def test_a_client_finds_the_six_tools_with_words_for_every_argument(
    told: tuple[Path, Session],
) -> None:
    _, seen = told
    assert set(seen.tools) == TOOLS == {name for name, _ in calls_of(skill())}
    assert seen.instructions == instructions()
    assert seen.said == ""
    for tool in seen.tools.values():
        assert len(tool.description) > 80
        for argument in tool.input_schema["properties"].values():
            assert argument.get("description") or argument.get("enum")
    hints = {name for name, tool in seen.tools.items() if tool.annotations is not None}
    assert hints == {"explain_log", "predict", "choose"}


def test_diagnose_answers_as_the_brief_doctor_does_and_names_what_it_ran(
    told: tuple[Path, Session],
) -> None:
    root, _ = told
    *lines, last = answer_of(told, "diagnose").splitlines()
    assert last == "files run: my_model.py, parts.py"
    command = ["doctor", "--brief", "my_model.py:build", "--log", "log.csv"]
    command += ["--batch-tokens", "500k"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "normscope", *command],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == lines
    assert lines[0] == "a line of the model's own on standard output"
    assert any(line.startswith("do: train again under another placement") for line in lines)


def test_explain_log_answers_without_running_anything(told: tuple[Path, Session]) -> None:
    lines = answer_of(told, "explain_log").splitlines()
    assert lines[0].startswith("training: 1 event")
    assert any("rise from update 40" in line for line in lines)
    assert not any("files run" in line for line in lines)


def test_choose_recommends_and_predict_answers_in_json(told: tuple[Path, Session]) -> None:
    first = answer_of(told, "choose").splitlines()[0]
    assert "24 blocks of width 1,024, muon" in first
    assert "in batches of 500,000" in " ".join(answer_of(told, "choose").split())
    curves = json.loads(answer_of(told, "predict"))
    assert list(curves) == ["pre-ln", "post-ln"]
    assert all(len(one["q"]) == 49 for one in curves.values())


def test_transplant_writes_its_folder_and_names_what_it_ran(told: tuple[Path, Session]) -> None:
    root, _ = told
    text = answer_of(told, "transplant")
    assert text.splitlines()[-1] == "files run: my_model.py, parts.py"
    assert json.loads((root / "my_model_pre_ln/transplant.json").read_text())["placement"] == (
        "pre-ln"
    )


def test_compare_lists_the_runs_and_trains_nothing(told: tuple[Path, Session]) -> None:
    root, _ = told
    *commands, last = answer_of(told, "compare").splitlines()
    assert last == "files run: my_model.py, parts.py"
    assert sum(line.startswith("normscope train runs/decides/") for line in commands) == 4
    assert len(list((root / "runs/decides/cells").glob("*.toml"))) == 4
    assert not list((root / "runs/decides").rglob("metrics.jsonl"))


WRONG: list[tuple[Call, str]] = [
    (("diagnose", {"target": "my_model.py:built"}), "does not define 'built' itself"),
    (("diagnose", {"target": "other.py:build"}), "no such file or folder"),
    (("diagnose", {"target": "my_model.py:broken"}), "RuntimeError: two lines of an error"),
    (("diagnose", {"target": "my_model.py:build", "optimizer": "adan"}), "choose one of"),
    (("diagnose", {}), "target: Field required"),
    (("explain_log", {"log": "my_model.py"}), "my_model.py"),
    (("explain_log", {"log": "log.csv", "warmup_updates": -1}), "warmup_updates: Input should"),
    (("predict", {"placements": ["pre-lm"]}), "did you mean 'pre-ln'?"),
    (("predict", {"placements": ["--import=my_model.py"]}), "unknown placement '--import="),
    (("choose", {"tokens": "many"}), "'many' is no number"),
    (("choose", {"batch_tokens": "large"}), "'large' is no number"),
    (("diagnose", {"target": "my_model.py:build", "batch_tokens": "0"}), "batch"),
    (("transplant", {"target": "my_model.py:build", "to": "pre-ln", "out": "."}), "exists"),
    (("compare", {"target": "my_model.py:build", "out": "o", "peak_lr": [-1.0]}), "peak_lr"),
    (("normalise", {}), "Unknown tool: normalise"),
]


def test_what_is_wrong_is_an_error_of_one_line(tmp_path: Path) -> None:
    root = laid(tmp_path)
    seen = session(root, [call for call, _ in WRONG], tmp_path / "said")
    for (call, wanted), answer in zip(WRONG, seen.answers, strict=True):
        assert answer.is_error, call
        assert wanted in answer.text, call
        assert "\n" not in answer.text, call
        assert "Traceback" not in answer.text, call
    assert seen.said == ""
    assert not (root / "o").exists()


FEW = {
    "target": "my_model.py:build",
    "out": "runs/few",
    "placements": ["own"],
    "warmup_updates": [0],
    "peak_lr": [1e-3],
    "settings": ["train.duration=2", "train.validate_every=2", "train.threads=1"],
    "train": True,
}
"""A comparison of one run of two updates."""


def attacks(root: Path, marker: Path) -> list[Call]:
    """Calls that would run a file outside of the root, and what they need."""
    beside = root.parent
    tripwire = f"open({str(marker)!r}, 'w').close()\n"
    (beside / "outside.py").write_text(tripwire + MODEL)
    (root / "link.py").symlink_to(beside / "outside.py")
    (root / "linked").symlink_to(beside)
    (root / "on_path.py").write_text(
        f"import sys\nsys.path.append({str(beside)!r})\nfrom outside import Model\n"
        "def build():\n    return Model()\n"
    )
    (root / "by_name.py").write_text(
        f"import runpy\ndef build():\n    return runpy.run_path({str(beside / 'outside.py')!r})\n"
        "def batches(number):\n    return None\n"
    )
    (root / "named.toml").write_text('imports = ["../outside.py"]\n')
    (root / "factory.toml").write_text(
        f'task = "own"\nmodel.factory = "{beside / "outside.py"}:build"\n'
    )
    targets = [
        "../outside.py:build",
        f"{beside / 'outside.py'}:build",
        "link.py:build",
        "linked/outside.py:build",
        "on_path.py:build",
        "by_name.py:build",
        "named.toml",
        "factory.toml",
        "outside:build",
    ]
    found: list[Call] = []
    for number, target in enumerate(targets):
        arguments: dict[str, Any] = {"target": target, "out": f"out-{number}"}
        found.append(("compare", arguments | {"train": True}))
    for target in targets[4:6]:
        found.append(("diagnose", {"target": target}))
    setting = f"imports=[{str(beside / 'outside.py')!r}]"
    found.append(("compare", {"target": "my_model.py:build", "out": "s", "settings": [setting]}))
    found.append(("transplant", {"target": "my_model.py:build", "to": "pre-ln", "out": "../made"}))
    found.append(("compare", {"target": "my_model.py:build", "out": "linked/made", "train": True}))
    found.append(("explain_log", {"log": "../log.csv"}))
    return found


def test_nothing_outside_of_the_root_is_run_read_or_written(tmp_path: Path) -> None:
    root, marker = laid(tmp_path), tmp_path / "ran"
    calls = attacks(root, marker)
    (tmp_path / "log.csv").write_bytes((root / "log.csv").read_bytes())
    before = sorted(tmp_path.iterdir())
    seen = session(root, calls, tmp_path / "said")
    assert not marker.exists()
    for call, answer in zip(calls, seen.answers, strict=True):
        assert answer.is_error, (call, answer.text)
        assert "\n" not in answer.text
        assert re.search("lies outside of|nothing of that name", answer.text), answer.text
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "said"])
    # The tripwire is one: the command line, which is the user's own word, runs it.
    subprocess.run(
        [sys.executable, "-m", "normscope", "doctor", "--no-advice", "--no-laws", "link.py:build"],
        cwd=root,
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(root)])},
    )
    assert marker.exists()


def test_the_processes_of_a_comparison_are_held_too(tmp_path: Path) -> None:
    root, marker = laid(tmp_path), tmp_path / "ran"
    (tmp_path / "outside.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    reached = root / "reached"
    (root / "late.py").write_text(
        f"{MODEL}\n\ndef build():\n    import runpy, sys\n"
        f"    if 'train' in sys.argv:\n        open({str(reached)!r}, 'w').close()\n"
        f"        runpy.run_path({str(tmp_path / 'outside.py')!r})\n"
        "    return Model()\n"
    )
    seen = session(root, [("compare", FEW | {"target": "late.py:build"})], tmp_path / "said")
    assert (reached.exists(), marker.exists()) == (True, False)
    assert f"files refused: {tmp_path / 'outside.py'}" in seen.answers[0].text


def test_a_refused_file_is_named_where_the_model_does_without_it(tmp_path: Path) -> None:
    root = laid(tmp_path)
    (tmp_path / "outside.py").write_text("")
    (root / "without.py").write_text(
        f"import sys\nsys.path.append({str(tmp_path)!r})\n"
        "try:\n    import outside\nexcept ImportError:\n    pass\n" + MODEL
    )
    seen = session(root, [("diagnose", {"target": "without.py:build"})], tmp_path / "said")
    (answer,) = seen.answers
    assert not answer.is_error
    assert answer.text.splitlines()[-2:] == [
        "files run: without.py, parts.py",
        f"files refused: {tmp_path / 'outside.py'}",
    ]


def test_a_comparison_is_trained_where_that_is_asked(tmp_path: Path) -> None:
    root = laid(tmp_path)
    seen = session(root, [("compare", FEW)], tmp_path / "said")
    assert seen.answers[0] == Answer(False, seen.answers[0].text)
    assert (root / "runs/few/report.html").is_file()
    (log,) = (root / "runs/few/runs").glob("*/metrics.jsonl")
    assert json.loads(log.read_text().splitlines()[-1])


def test_a_server_without_a_client_ends_on_a_signal_and_with_its_input(tmp_path: Path) -> None:
    root = laid(tmp_path)
    command = [sys.executable, "-P", "-m", "normscope", "mcp", "--root", str(root)]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        server.stdin.write(json.dumps(ping).encode() + b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM
