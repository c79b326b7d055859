"""`print` of a result is what the command line prints, and its `repr` one short line."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import in_process
import normscope
from normscope.cli.main import main
from normscope.compare import pool

MODEL = """
import torch
from torch import nn
def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 3), torch.linspace(-2, 2, 160).sin().view(2, 5, 16)
"""
LONGEST_REPR = 200


@pytest.fixture
def printed(monkeypatch, capfd) -> Callable[..., str]:
    """What a command prints on 100 columns, lines of blanks being empty."""
    monkeypatch.setenv("COLUMNS", "100")

    def called(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["normscope", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit):
            main()
        return "\n".join(line.rstrip() for line in capfd.readouterr().out.splitlines())

    return called


def shown(found: object) -> str:
    assert "\n" not in repr(found)
    assert len(repr(found)) <= LONGEST_REPR
    return str(found)


def without_target(text: str) -> str:
    """The words of a report but for what Python cannot know of a model that is built: where it was
    built, and the target of the command that the terminal suggests.
    """
    words = " ".join(text.split())
    words = re.sub(r",? (built )?at made\.py:\d+", "", words)
    return re.sub(r"normscope doctor.*?tests it", "", words)


def test_a_diagnosis(printed, tmp_path: Path, monkeypatch) -> None:
    # A short name: the command that the terminal suggests shall not push a finding below the
    # report's last line.
    monkeypatch.chdir(tmp_path)
    Path("made.py").write_text(MODEL)
    there = printed("doctor", "made.py:build", "--fail-on", "error")
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 3), torch.linspace(-2, 2, 160).sin().view(2, 5, 16)
    found = normscope.diagnose(model, x, target="TransformerEncoder (made.py:build)")
    assert shown(normscope.diagnose(model, x, advise=False)) != there
    assert without_target(str(found)) == without_target(there)
    assert "post-ln, 3 blocks" in there
    assert repr(normscope.diagnose(model, x, advise=False)).startswith(
        "Diagnosis(TransformerEncoder: "
    )


def test_a_diagnosis_is_as_wide_as_the_terminal(monkeypatch) -> None:
    found = normscope.diagnose(nn.TransformerEncoderLayer(16, 2, 32), advise=False)
    for columns in (40, 70):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert columns - 15 < max(map(len, str(found).splitlines())) <= columns


def test_a_diagnosis_is_ascii_where_python_prints_nothing_else(monkeypatch) -> None:
    found = normscope.diagnose(nn.TransformerEncoderLayer(16, 2, 32), advise=False)
    assert not str(found).isascii()

    class Stdout:
        encoding = "ascii"

    monkeypatch.setattr(sys, "stdout", Stdout())
    assert str(found).isascii()
    # By letters that are like them, as the command line writes it.
    assert "stream E|x|^2/d" in str(found)
    assert "?" not in str(found)


def test_a_prediction(printed) -> None:
    there = printed(
        "predict", "pre-ln", "deepnorm", "--blocks", "8", "--width", "32", "--update", "adam"
    )
    found = normscope.predict("pre-ln", "deepnorm", blocks=8, width=32, heads=1, update="adam")
    assert shown(found) == there


@pytest.mark.thorough
def test_placements(printed) -> None:
    assert shown(normscope.placements("rezero", "keel")) == printed(
        "placements", "show", "rezero", "keel"
    )
    every = normscope.placements()
    assert shown(every) == printed("placements", "--long")


def test_a_choice(printed) -> None:
    size = ("--model", "decoder-only", "--blocks", "12", "--width", "768")
    found = normscope.choose("post-ln", model="decoder-only", blocks=12, width=768)
    assert shown(found) == printed("choose", "post-ln", *size)
    norms = normscope.choose("qk-norm", model="decoder-only", blocks=12, width=768)
    assert shown(norms) == printed("choose", "qk-norm", *size)


@pytest.mark.thorough
def test_a_comparison(printed, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pool, "run_cells", in_process.run_cells)
    config = {
        "model": {
            "width": 16,
            "ffn_width": 16,
            "heads": 2,
            "encoder_blocks": 1,
            "decoder_blocks": 1,
        },
        "data": {"toy_pairs": 300, "max_tokens": 512},
        "train": {"threads": 1, "device": "cpu", "duration": 2, "validate_every": 2},
    }
    found = normscope.compare(
        config, out=tmp_path / "grid", placements="pre-ln", warmup_updates=[0, 1], peak_lr=1e-3
    )
    assert shown(found) == printed("report", str(tmp_path / "grid"))
    said = " ".join(str(found).split())
    assert said.endswith(f"report: {tmp_path}/grid/report.html")
    assert "Pre-LN, no warm-up" in said
    assert " ".join(found.page.conclusion[0].split()) in said


def test_a_trained_model_names_itself_in_a_line(tmp_path: Path) -> None:
    small = {"width": 16, "ffn_width": 16, "heads": 2, "encoder_blocks": 1, "decoder_blocks": 1}
    config = {"model": small, "data": {"toy_pairs": 200}}
    run = normscope.train(config, tmp_path / "run", train__duration=2, train__threads=1)
    assert repr(run.load()) == "TrainedModel(EncoderDecoder of task translation, update 2)"
