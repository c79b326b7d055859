"""The script that Slurm is given holds options and one command of ours, whatever folders and options are called."""

import shlex
from pathlib import Path

import pytest

from normscope.engines.seam import Job, SlurmSettings
from normscope.engines.slurm import JobArray, tasks_of
from normscope.errors import UserError


def job(folder: Path, directory: Path) -> Job:
    return Job(
        name="one",
        words=["-m", "normscope", "train"],
        threads=1,
        directory=directory,
        folder=folder / "runs/one",
        log=folder / "logs/one.txt",
    )


@pytest.mark.parametrize(
    ("out", "directory"),
    [("a\ntouch evil\n", "here"), ("out", "here\ntouch evil\n"), ("out", "here\rtouch evil")],
)
def test_a_newline_never_becomes_a_line_of_shell(out: str, directory: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a newline or another control character"):
        JobArray.written([job(tmp_path / out, tmp_path / directory)], SlurmSettings())
    assert list(tmp_path.rglob("*.sh")) == []


def test_other_signs_stay_words_of_their_options(tmp_path: Path) -> None:
    out, here = tmp_path / "50% of 'it' $(touch evil) `x`; %u\t", tmp_path / 'a "b" %j'
    script = JobArray.written([job(out, here)], SlurmSettings(partition="p;q")).script
    first, *lines = script.read_text().splitlines()
    said = dict(shlex.split(line.removeprefix("#SBATCH "))[0].partition("=")[::2] for line in lines[:-1])
    assert first == "#!/bin/sh"
    assert all(line.startswith("#SBATCH --") for line in lines[:-1])
    assert (said["--chdir"], said["--partition"]) == (str(here), "p;q")
    # Slurm reads %% as a percent sign, and %A and %a as the numbers of the array and the task.
    assert said["--output"] == str(out / "slurm").replace("%", "%%") + "/%A_%a.txt"
    assert shlex.split(lines[-1])[2:6] == ["-P", "-m", "normscope.engines.slurm", str(script)]


def test_what_was_submitted_is_read_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    """A job holds the words of a command, so that a changed file would have the cluster run something else."""
    here = job(tmp_path / "out", tmp_path)
    array = JobArray.written([here], SlurmSettings(gpus=2))
    array.note("12")
    assert (array.job(0), tasks_of(here)) == ((here, 2), ["12_0"])
    file = array.script.with_suffix(".json")
    text = file.read_text()
    for changed in (text.replace("train", "evil!"), text[:40], "[]", ""):
        file.write_text(changed)
        for read in (lambda: array.job(0), lambda: tasks_of(here)):
            with pytest.raises(UserError, match=r"array-.*\.json is damaged|cannot be read"):
                read()
