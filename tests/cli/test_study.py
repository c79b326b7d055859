"""`normscope study …` as a user meets it: every verb, what it prints and leaves behind, and
mistakes in one line.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from normscope.cli import main as cli
from normscope.compare import pool
from normscope.engines.seam import Engine
from normscope.errors import UserError
from normscope_studies.engine import trainings
from normscope_studies.engine.discovery import studies
from normscope_studies.lemmas import study as lemmas

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


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("name", TINY)
def test_a_study_from_the_command_line(study, tmp_path: Path, name: str):
    sets = [word for setting in TINY[name] for word in ("--set", setting)]
    code, out, err = study(name, "--scale", "smoke", *sets, "--out", tmp_path / "out")
    assert code == 0, err
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert out.splitlines()[0] == results["title"]
    said = " ".join(out.split())  # lines are broken to the terminal's columns
    for claim in results["claims"]:
        assert f"{claim['name']}: {claim['verdict']}" in said
        assert " ".join(f"measured: {claim['found']}".split()) in said
        assert " ".join(f"claim: {claim['statement']}".split()) in said
    for key, value in results["conditions"].items():
        assert " ".join(f"{key}: {value}".split()) in said
    assert f"{len(results['claims'])} claims: " in said
    assert said.endswith(f"page: {tmp_path / 'out' / 'report.html'}")
    assert results["commands"][0].startswith(
        f"normscope study {name} --scale smoke --set {TINY[name][0]}"
    )
    assert all((tmp_path / "out" / name).is_file() for name in ("report.html",))
    assert "error" not in err


@pytest.mark.parametrize("name", studies())
def test_every_verb_has_its_study(name: str):
    study = studies()[name].load()
    assert set(study.scales) >= {"smoke", "cpu", "paper"}
    assert study.title
    assert study.question.endswith((".", "?"))


def test_every_folder_and_every_file_with_a_study_is_found():
    room = Path(lemmas.__file__).parents[1]
    folders = {file.parent.name for file in room.glob("*/study.py")} - {"engine"}
    files = {
        file.stem for file in room.glob("*.py") if "\nSTUDY = " in file.read_text(encoding="utf-8")
    }
    assert set(studies()) == {name.replace("_", "-") for name in folders | files}


def test_the_manual_asks_the_question_of_every_study():
    page = (Path(__file__).parents[2] / "docs/studies.md").read_text(encoding="utf-8")
    lacking = [name for name in studies() if f"\n| `{name}` | " not in page]
    assert lacking == [], (
        "docs/studies.md, Which studies there are: give each of these a row with its question"
    )


@pytest.mark.parametrize(
    "words", [["--help"], ["lemmas", "--help"], ["depth", "--help"]], ids=" ".join
)
def test_help_needs_no_torch(words: list[str]):
    """It takes seconds to import."""
    code = f"""
import sys
from normscope.cli.main import command_line
try:
    command_line("study")(["study", *{words!r}])
except SystemExit:
    pass
print("torch" in sys.modules)
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.splitlines()[-1] == "False"
    assert "lemmas" in out if words == ["--help"] else "--scale" in out


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("scale", ["smoke", "cpu"])
def test_a_scale_whose_verdicts_mean_nothing_says_so(study, tmp_path: Path, scale: str):
    sets = [
        word for setting in (*TINY["lemmas"], "singular_width=16") for word in ("--set", setting)
    ]
    code, out, _ = study("lemmas", "--scale", scale, *sets, "--out", tmp_path)
    assert code == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    words = "its verdicts mean nothing"
    assert [words in text for text in (out, results["caution"], html)] == [scale == "smoke"] * 3
    # Before the first verdict, and after the last.
    outside = out.partition("Lemma 1: ")[0], out.rpartition("measured: ")[2]
    assert [words in " ".join(some.split()) for some in outside] == [scale == "smoke"] * 2
    assert results["scale"] == scale


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "huge"], "--scale must be one of smoke, cpu, paper, got 'huge'"),
        (["--set", "seed=3"], "unknown key 'seed'; did you mean 'seeds'?"),
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


@pytest.mark.thorough
def test_an_interruption_says_how_to_go_on_and_what_is_there_is_kept(
    study, tmp_path: Path, monkeypatch
):
    settings = (
        "lemmas",
        "--scale",
        "smoke",
        "--set",
        "width=16",
        "--set",
        "seeds=2",
        "--out",
        tmp_path,
    )

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lemmas, "claims", interrupt)
        code, out, err = study(*settings)
    assert (code, out) == (130, "")
    assert "stopped by SIGINT; run the same command to resume" in err
    kept = tmp_path / "pieces" / "relu" / "seed-1.json"
    before = kept.stat().st_mtime_ns
    assert study(*settings)[0] == 0
    assert kept.stat().st_mtime_ns == before


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("words", "at_once"), [((), 1), (("--processes", 7), 7)])
def test_so_many_runs_train_at_a_time_as_the_user_says(
    study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], at_once: int
):
    def run_cells(cells: object, *, engine: Engine, **options: object) -> None:
        raise UserError(f"{engine.at_once} at a time")

    monkeypatch.setattr(trainings, "run_cells", run_cells)
    monkeypatch.setattr(pool, "available_cores", lambda: 1)
    code, _, err = study("optimizers", "--scale", "smoke", *words, "--out", tmp_path / "out")
    assert (code, err.splitlines()[-1]) == (2, f"error: {at_once} at a time")


def test_a_dry_run_counts_and_trains_nothing(study, tmp_path: Path):
    out = tmp_path / "out"
    code, said, told = study("figure-5", "--scale", "smoke", "--dry-run", "--out", out)
    assert code == 0, told
    shown = " ".join(said.split())
    assert "pre-training: 4 trainings, 96 updates" in shown
    assert "fine-tuning on TOY: 10 trainings" in shown
    assert shown.endswith("nothing was trained")
    assert not out.exists()
