"""What a user may say of engines."""

import shlex
import sys
from pathlib import Path

import pytest

from normscope.compare.compare import prepare
from normscope.compare.grid import Grid
from normscope.engines.choosing import chosen, local
from normscope.engines.seam import SlurmSettings, with_devices
from normscope.engines.slurm import JobArray
from normscope.errors import UserError
from tiny import tiny


def test_nothing_said_is_this_machine() -> None:
    assert chosen(None) is chosen("local") is chosen(None, {"name": "local"}) is local
    assert chosen("local", {"name": "ray", "gpus": 2}) is local  # the settings are of another engine


@pytest.mark.parametrize(
    ("asked", "table", "message"),
    [
        ("dask", None, "local, ray, slurm, or a TOML file with a table .engine. that names one; got 'dask'"),
        (None, {"name": "ray", "gpu": 1}, "unknown key 'gpu'; did you mean 'gpus'"),
        ("slurm", {"name": "slurm", "gpus": -1}, "gpus must be 0 or more, got -1"),
        (
            "slurm",
            {"name": "slurm", "partition": "a b"},
            "partition: options of sbatch are words without blanks, got 'a b'",
        ),
        ("slurm", {"name": "slurm", "options": ["-N2"]}, "must begin with --, got .'-N2'."),
        (None, {"name": "local", "gpus": 1}, "local has no settings, got gpus"),
    ],
)
def test_a_mistake_names_what_is_allowed(asked: str | None, table: dict[str, object] | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        chosen(asked, table)


def test_a_file_may_name_the_engine(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[engine]\nname = "slurm"\ngpu = 1\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"cluster\.toml: unknown key 'gpu'"):
        chosen(str(file))
    file.write_text('engine = "slurm"\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"cluster\.toml: engine is a table, such as \[engine\] .*; got 'slurm'"):
        chosen(str(file))


def test_an_engine_that_is_not_installed_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install '\.\[ray\]'"):
        chosen("ray")(1)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="calls sbatch and squeue, and this machine has no such command"):
        chosen("slurm")


def test_a_dry_run_writes_what_slurm_would_be_given_and_starts_nothing(tmp_path: Path) -> None:
    grid = Grid(placements_and_warmups=(("post-ln", 0), ("pre-ln", 0)), peak_lrs=(1e-3,), optimizers=("adam",), seeds=2)
    settings = SlurmSettings(partition="gpu", time="30", gpus=2, at_once=3, options=("--constraint=h100",))
    (line,) = prepare(tiny(), grid, tmp_path / "out", settings)
    command, file = shlex.split(line)
    script = Path(file).read_text(encoding="utf-8")
    assert command == "sbatch"
    for asked in (
        "--array=0-3%3",
        "--gpus=2",
        "--partition=gpu",
        "--time=30",
        "--signal=B:TERM@120",
        "--constraint=h100",
    ):
        assert f"#SBATCH {asked}\n" in script
    jobs = [JobArray(Path(file)).job(place) for place in range(4)]
    assert [devices for _, devices in jobs] == [2] * 4
    assert all(Path(job.words[3]).is_file() for job, _ in jobs)
    assert not (tmp_path / "out/runs").exists()
    assert with_devices(jobs[0][0].words, 2)[-2:] == ["--devices", "2"]
    assert len(prepare(tiny(), grid, tmp_path / "out", None)) == 4


def test_nothing_is_left_of_a_comparison_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from normscope.cli.main import main

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", ["normscope", "compare", "--out", str(tmp_path / "grid"), "--engine", "slurm"])
    with pytest.raises(SystemExit):
        main()
    assert list(tmp_path.iterdir()) == []
