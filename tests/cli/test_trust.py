"""Python that a run names runs on the user's word alone, and is what the run began with."""

import hashlib
import os
import py_compile
import shutil
from pathlib import Path

import pytest

import forked
import normscope
from normscope.compare.compare import report
from normscope.errors import UserError
from normscope.train import RunFolder
from tiny import MY_PLACEMENT, finish, options

PLACEMENT = MY_PLACEMENT.replace("half-ln", "told-ln")
SETTINGS = options("train.duration=2", "train.checkpoint_every=1", "model.placement=told-ln")


def placement_file(folder: Path) -> Path:
    """An own placement whose file says beside itself each time that it runs."""
    file = folder / "told.py"
    file.write_text(
        f"{PLACEMENT}\nwith open({str(folder / 'ran')!r}, 'a') as stream:\n    stream.write('x')\n"
    )
    return file


def ran(folder: Path) -> bool:
    """Whether the file has run since this was last asked."""
    marker = folder / "ran"
    found = marker.exists()
    marker.unlink(missing_ok=True)
    return found


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of one's own, and a run of it; not to be changed."""
    folder = tmp_path_factory.mktemp("received")
    file = placement_file(folder)
    assert (
        finish(
            forked.start("train", "--run", str(folder / "run"), "--import", str(file), *SETTINGS)
        )[0]
        == 0
    )
    assert ran(folder)
    return folder


def normscope_says(*words: object) -> tuple[int, str]:
    code, out, err = finish(forked.start(*map(str, words), stdin=b"hund\n"))
    assert "Traceback" not in err
    return code, err + out


COMMANDS = {
    "evaluate": ("evaluate", "RUN", "--beam", "1"),
    "translate": ("translate", "RUN", "--beam", "1"),
    "doctor": ("doctor", "RUN", "--no-advice"),
    "dry-run": ("train", "RUN/config.toml", "--dry-run"),
    "configuration": ("doctor", "RUN/config.toml", "--no-advice"),
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_s_file_runs_where_the_user_says_so(begun: Path, tmp_path: Path, name: str) -> None:
    words = [
        word.replace("RUN", str(begun / "run")).replace("OUT", str(tmp_path / "out"))
        for word in COMMANDS[name]
    ]
    code, said = normscope_says(*words)
    assert (code, ran(begun)) == (2, False), said
    assert said.count("error: ") == 1
    for part in (str(begun / "told.py"), "--trust", "--import"):
        assert part in said
    code, said = normscope_says(*words, "--trust")
    assert (code in (0, 1), ran(begun)) == (True, True), said


def test_an_export_asks_too(begun: Path, tmp_path: Path) -> None:
    code, said = normscope_says("export", begun / "run", tmp_path / "out")
    assert (code, ran(begun), "--trust" in said) == (2, False, True), said


def test_a_report_of_a_run_needs_no_code_and_says_where_the_formula_is(
    begun: Path, tmp_path: Path
) -> None:
    code, said = normscope_says("report", begun / "run", "--out", tmp_path)
    assert (code, ran(begun)) == (0, False), said
    page = (tmp_path / "report.html").read_text()
    assert "told-ln" in page
    assert f"{begun / 'told.py'}, which has it, was not run" in page


def test_another_content_is_refused_unless_the_file_is_named(begun: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(begun, tmp_path / "here"))
    file = placement_file(here)
    before = hashlib.sha256((begun / "told.py").read_bytes()).hexdigest()
    run = RunFolder(here / "run")
    text = run.config_file.read_text().rpartition("# SHA-256")[0]
    assert f'"{begun / "told.py"}@sha256:{before}"' in text
    run.write_config(text.replace(str(begun), str(here)))
    code, said = normscope_says("translate", run.path, "--trust")
    assert (code, ran(here)) == (2, False)
    assert f"{file} is not as it was when the run began (SHA-256 {before[:12]} then, " in said
    code, said = normscope_says("translate", run.path, "--import", file)
    assert (code, ran(here)) == (0, True), said
    with pytest.raises(UserError, match="is not as it was when the run began"):
        normscope.load_run(run.path, trust=True)


def test_the_same_content_from_elsewhere_is_the_same_file(begun: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(begun / "told.py", tmp_path / "mine.py"))
    assert normscope_says("translate", begun / "run", "--import", copy)[0] == 0
    assert ran(begun)


def test_what_is_compiled_beside_a_file_is_not_what_runs(begun: Path, tmp_path: Path) -> None:
    """Python takes a cache of a file by its time and size, which whoever sends both can choose."""
    evil = tmp_path / "told.py"
    size = (begun / "told.py").stat().st_size
    evil.write_text(f"open({str(tmp_path / 'evil')!r}, 'w')\n".ljust(size - 1, "#") + "\n")
    times = (begun / "told.py").stat()
    os.utime(evil, ns=(times.st_atime_ns, times.st_mtime_ns))
    cache = Path(str(py_compile.compile(str(evil))))
    shutil.copy2(begun / "told.py", evil)
    assert cache.is_file()
    assert normscope_says("translate", begun / "run", "--import", evil)[0] == 0
    assert (ran(begun), (tmp_path / "evil").exists()) == (True, False)


@pytest.mark.thorough
def test_a_file_edited_between_stop_and_resume_belongs_to_another_run(tmp_path: Path) -> None:
    file = placement_file(tmp_path)
    run = tmp_path / "run"
    words = ("train", "--run", run, "--import", file, *SETTINGS)
    assert normscope_says(*words)[0] == 0
    longer = ("--set", "train.duration=3", "--set", "schedule.decay=constant")
    shorter = ("train", "--run", run.with_name("other"), "--import", file, *SETTINGS, *longer[2:])
    assert normscope_says(*shorter)[0] == 0
    file.write_text(file.read_text().replace("0.5 * x", "0.25 * x"))
    for command in (words, (*shorter, *longer)):
        code, said = normscope_says(*command)
        assert (code, said.count("\n")) == (2, 1), said
        assert f"{file} was edited since the run" in said
        assert "put it back as it was, or choose another folder" in said
    file.write_text(file.read_text().replace("0.25 * x", "0.5 * x"))
    assert normscope_says(*shorter, *longer)[0] == 0


def test_reading_a_run_in_python_runs_nothing(begun: Path) -> None:
    run = normscope.open_run(begun / "run")
    assert run.config.model.placement == "told-ln"
    assert run.losses["train"].updates.tolist() == [1, 2]
    with pytest.raises(
        UserError,
        match=r"told\.py, which runs on your word alone: --trust \(trust=True in Python\)",
    ):
        run.load()
    assert not ran(begun)


def test_a_report_in_python_runs_nothing(begun: Path, tmp_path: Path) -> None:
    report([begun / "run"], tmp_path)
    assert not ran(begun)
