"""A user's code that ends the program: every verb that runs it fails in one line, and leaves
nothing half made.
"""

import sys
from pathlib import Path

import pytest

from normscope.cli.main import main

MODEL = '''"""A model of a user's own that ends the program at one place."""

import sys

import torch
from torch import nn


class Mine(BaseException):
    """Of the user's own."""


def end(place):
    if place == "{place}":
        {how}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        layers = [nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(16, 50)

    def forward(self, ids):
        end("forward")
        if self.training:
            end("training")
        if torch.is_grad_enabled():
            end("gradients")
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build():
    end("build")
    return Model()


def batches():
    end("batches")
    return batch


def batch(number):
    end("batch")
    ids = torch.arange(18).reshape(2, 9) + number
    return ids[:, :-1], ids[:, 1:]


def validation():
    end("validation")
    return [batch(0)]


def loss(model, batch):
    end("loss")
    return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


end("import")
'''
PLACEMENT = '''"""A placement of a user's own."""

import sys

from normscope.placement import Placement, register


@register
class Ending(Placement):
    """x ← LN(x / 2 + F(x))"""

    name = "ending-ln"
    title = "Ending-LN"
    citation = "this test"
    year = 2026

    def join(self, x, sublayer, norm):
        sys.exit(0)
'''
SHORT = "--set train.duration=1 --set train.device=cpu --set train.threads=1"
DOCTOR = "doctor model.py:build --no-advice --html page.html --json page.json --card card.md"
TRANSPLANT = "transplant model.py:build --to peri-ln --out made"
TRAIN = f"train model.py:build --run made {SHORT}"
COMPARE = f"compare model.py:build --placements own --warmup-updates 0 --peak-lr 1e-3 {SHORT}"
CASES = [
    *((DOCTOR, place) for place in ("import", "build", "batches", "batch", "loss", "forward")),
    (DOCTOR, "gradients"),
    *((TRANSPLANT, place) for place in ("build", "forward", "training", "gradients")),
    *((TRAIN, place) for place in ("build", "batches", "batch", "validation", "loss", "training")),
    (f"{TRAIN} --set train.input_workers=1", "batch"),
    (f"{TRAIN} --dry-run --import model.py", "build"),
    (f"{COMPARE} --out made", "batches"),
    (f"{COMPARE} --out made", "forward"),
]


def ended(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    """The exit code of a command in this process, and the errors that it told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["normscope", *words.split()])
        with pytest.raises(SystemExit) as end:
            main()
    told = capsys.readouterr().err.splitlines()
    return end.value.code, [line for line in told if line.startswith("error: ")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize(("words", "place"), CASES)
def test_a_verb_fails_in_one_line_where_the_users_code_ends_the_program(
    words: str, place: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "model.py").write_text(MODEL.format(place=place, how="sys.exit(0)"))
    code, errors = ended(words, capsys)
    assert code == 2
    assert len(errors) == 1
    assert "SystemExit: 0" in errors[0]
    assert f"{here / 'model.py'}, line 15" in errors[0]
    assert not [file for file in here.iterdir() if file.suffix in (".html", ".json", ".md")]
    assert not list(here.glob("made/**/step-*"))
    assert not list(here.rglob(".unfinished-*"))


@pytest.mark.parametrize("how", ["sys.exit()", "sys.exit(1)", "raise Mine('enough')", "exit(0)"])
@pytest.mark.parametrize("words", [DOCTOR, TRANSPLANT])
def test_however_it_is_ended(
    words: str, how: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "model.py").write_text(MODEL.format(place="forward", how=how))
    code, errors = ended(words, capsys)
    assert code == 2
    assert len(errors) == 1
    assert "ended the program: " in errors[0]
    assert ("Mine: enough" if "Mine" in how else "SystemExit") in errors[0]


@pytest.mark.parametrize(
    "words",
    [
        "predict ending-ln --blocks 2",
        "placements show ending-ln",
        "placements",
        f"train --run made --set model.placement=ending-ln --set data.toy_pairs=60 {SHORT}",
    ],
)
def test_a_placement_of_the_users_is_code_of_theirs_too(
    words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from normscope.placement import registry

    (here / "mine.py").write_text(PLACEMENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
        code, errors = ended(f"{words} --import mine.py", capsys)
    assert code == 2
    assert len(errors) == 1
    assert f"SystemExit: 0 ({here / 'mine.py'}, line 18)" in errors[0]


def test_an_interruption_stays_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "model.py").write_text(MODEL.format(place="forward", how="raise KeyboardInterrupt"))
    code, errors = ended(DOCTOR, capsys)
    assert code == 130
    assert errors == []
