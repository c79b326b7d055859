"""Where in the user's code modules are built and called."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from normscope import diagnose
from normscope.cli.main import main
from normscope.doctor.trace.code_places import PlacesOfBuilding, calls_noted
from normscope.errors import is_users_code

MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.ffn = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
        )
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + self.gain * self.ffn(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(4))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        nn.init.normal_(self.head.weight, std=3.0)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build():
    model = Model()
    return model, torch.arange(32).view(2, 16)
"""


def line_of(text: str) -> int:
    """Of the one line of the model's file that holds a text, from 1."""
    (found,) = [n for n, line in enumerate(MODEL.splitlines(), 1) if text in line]
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_model.py").write_text(MODEL)
    return tmp_path


@pytest.fixture(params=["own_model.py:build", "package_of_mine.inner:build"])
def target(here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    (here / "package_of_mine").mkdir()
    (here / "package_of_mine" / "inner.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(here))
    importlib.invalidate_caches()
    for name in ("package_of_mine", "package_of_mine.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return str(request.param)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    given = ["normscope", "doctor", *words, "--no-advice", "--no-laws"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", given)
        with pytest.raises(SystemExit):
            main()
    return capsys.readouterr().out


def test_the_place_is_told_in_the_terminal_json_and_annotations(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = "own_model.py" if target.startswith("own") else "package_of_mine/inner.py"
    built = line_of("self.head = nn.Linear")
    printed = said(capsys, target, "--json", "found.json", "--annotate", "gcc")
    flat = " ".join(printed.split())
    assert f"check loss-far-from-chance at {file}:{built}" in flat
    assert f"built at {file}:{built}, called at {file}:{line_of('return self.head')}" in flat
    assert f"\n{file}:{built}: warning: head.weight: " in printed
    (found,) = [
        one
        for one in json.loads(Path("found.json").read_text())["findings"]
        if one["id"] == "loss-far-from-chance"
    ]
    assert found["built_at"] == {"file": file, "line": built}
    assert found["called_at"] == {"file": file, "line": line_of("return self.head")}


def test_the_line_is_the_users_own_and_not_that_of_a_constructor(here: Path) -> None:
    names: dict[str, object] = {}
    code = compile(MODEL, str(here / "own_model.py"), "exec")
    with PlacesOfBuilding() as places:
        exec(code, names)
        model, ids = names["build"]()  # type: ignore[operator]
    found = places.of(model)
    lines = {path: place.line for path, place in found.built.items()}
    assert lines[""] == line_of("model = Model()")
    assert lines["blocks.2"] == line_of("Block(16) for")
    assert lines["blocks.2.gain"] == line_of("self.gain = nn")
    assert lines["blocks.0.ffn.2.weight"] == line_of("nn.Linear(2 * width, width)")
    with calls_noted(model) as called:
        model(ids)
    assert called["blocks.3"].line == line_of("x = block(x)")
    assert called["blocks.1.norm"].line == line_of("return x + self.gain")
    # What torch's own container calls is asked of the container.
    assert called["blocks.1.ffn.0"].line == line_of("return x + self.gain")
    assert "" not in called


def test_modules_are_built_afterwards_as_before() -> None:
    before = nn.Module.__init__, nn.Module.register_parameter
    with pytest.raises(ZeroDivisionError), PlacesOfBuilding():
        nn.Linear(2, 1 // 0)
    assert (nn.Module.__init__, nn.Module.register_parameter) == before


def test_a_copy_has_no_place_of_its_own_and_stands_where_what_holds_it_does() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16)

    def build() -> nn.Module:
        return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    with PlacesOfBuilding() as places:
        model = build()
    place = places.of(model).built_at("layers.1.linear1.weight")
    assert place is not None
    assert place.line == build.__code__.co_firstlineno + 1
    assert place.file.endswith("test_code_places.py")


def test_python_tells_where_a_module_is_called_alone() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.inner = nn.Embedding(50, 16), nn.Linear(16, 16)
            self.head = nn.Linear(16, 50, bias=False)
            nn.init.normal_(self.head.weight, std=3.0)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embedding(ids)
            return self.head(nn.functional.layer_norm(x + self.inner(x).relu(), (16,)))

    found = diagnose(Own(), torch.arange(32).view(2, 16), advise=False, laws=False)
    (far,) = [one for one in found.findings if one.id == "loss-far-from-chance"]
    assert far.built_at is None
    assert far.called_at is not None
    assert far.called_at.file.endswith("test_code_places.py")


def test_who_calls_a_librarys_model_calls_none_of_its_modules() -> None:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False
    )

    def run() -> torch.Tensor:
        return model(torch.zeros(3, 1, 8))

    with calls_noted(model) as called:
        run()
    assert called == {}


def test_code_of_libraries_is_not_the_users() -> None:
    assert is_users_code(__file__)
    assert not is_users_code(nn.__file__)
    assert not is_users_code(json.__file__)
    assert not is_users_code("<string>")
