"""`normscope study …` as a user meets it: every verb, what it prints and leaves behind, and mistakes in one line."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from normscope.cli import main as cli
from normscope.cli.study import STUDIES
from normscope.studies.lemmas import study as lemmas

TINY = {
    "lemmas": ("seeds=2", "blocks=2", "width=16", "tokens=4", "vectors=20"),
    "hidden-state": ("deep_blocks=2", "deep_width=16", "deep_draws=2", "width=16"),
    "concentration": ("toy_pairs=20", "width=16", "ffn_width=16", "vectors=50", "batches=1"),
}


@pytest.fixture
def study(monkeypatch, capsys):
    """Run `normscope study …`; its exit code, output and messages."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", "study", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


@pytest.mark.parametrize("name", TINY)
def test_a_study_from_the_command_line(study, tmp_path: Path, name: str):
    sets = [word for setting in TINY[name] for word in ("--set", setting)]
    code, out, err = study(name, "--scale", "smoke", *sets, "--out", tmp_path / "out")
    assert code == 0, err
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert out.splitlines()[0] == results["title"]
    for claim in results["claims"]:
        assert f"{claim['name']}: {claim['verdict']}" in out
        assert claim["found"] in out
    for key, value in results["conditions"].items():
        assert f"  {key}: {value}" in out
    assert out.splitlines()[-1] == f"page: {tmp_path / 'out' / 'report.html'}"
    assert results["commands"][0].startswith(f"normscope study {name} --scale smoke --set {TINY[name][0]}")
    assert all((tmp_path / "out" / name).is_file() for name in ("report.html",))
    assert "error" not in err


@pytest.mark.parametrize("name", STUDIES)
def test_every_verb_has_its_study(name: str):
    study = importlib.import_module(f"normscope.studies.{name.replace('-', '_')}.study").STUDY
    assert study.name == name
    assert set(study.scales) >= {"smoke", "cpu", "paper"}
    assert study.title
    assert study.question.endswith((".", "?"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "huge"], "--scale must be one of smoke, cpu, paper, got 'huge'"),
        (["--set", "seed=3"], "--set takes KEY=VALUE with a key of width, tokens, blocks"),
        (["--set", "seeds"], "got 'seeds'"),
        (["--set", "seeds=1"], "seeds must be at least 2, got 1"),
        (["--set", "seeds=few"], "seeds: Input should be a valid integer"),
        (["--import", "nowhere.py"], "cannot import"),
    ],
)
def test_a_mistake_is_one_line(study, tmp_path: Path, arguments: list[str], message: str):
    code, out, err = study("lemmas", *arguments, "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_interruption_says_how_to_go_on_and_what_is_there_is_kept(study, tmp_path: Path, monkeypatch):
    settings = ("lemmas", "--scale", "smoke", "--set", "width=16", "--set", "seeds=2", "--out", tmp_path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lemmas, "pre_ln", interrupt)
        code, out, err = study(*settings)
    assert (code, out) == (130, "")
    assert "stopped; the same command goes on from there" in err
    kept = tmp_path / "pieces" / "relu" / "seed-1.json"
    before = kept.stat().st_mtime_ns
    assert study(*settings)[0] == 0
    assert kept.stat().st_mtime_ns == before
