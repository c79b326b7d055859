"""What lies in a grid's folder for Slurm: scripts of arrays, their jobs, and how each has ended.

All of it is in `slurm/` beside the runs: `array-WORD.sh` and `array-WORD.json` are what `sbatch` was given,
`array-WORD.number` is the number that it gave back, and `NAME.code` is the exit code of a job that has ended.
"""

import json
import shlex
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import make_folders, write_atomically
from .seam import Job
from .settings import SlurmSettings


@dataclass(frozen=True, slots=True)
class Array:
    """Jobs that are submitted together."""

    script: Path

    @classmethod
    def written(cls, jobs: Sequence[Job], settings: SlurmSettings) -> "Array":
        """The script and its jobs, in the folder of the first. Raises OSError as writing does."""
        script = _folder(jobs[0]) / f"array-{uuid.uuid4().hex[:8]}.sh"
        for job in jobs:
            make_folders(_folder(job))
            _code_file(job).unlink(missing_ok=True)
        table = {"devices": settings.gpus, "jobs": [_as_json(job) for job in jobs]}
        write_atomically(script.with_suffix(".json"), json.dumps(table, indent=1) + "\n")
        write_atomically(script, _script(script, jobs, settings))
        return cls(script)

    def note(self, number: str) -> None:
        """Write down the number that Slurm has given it."""
        write_atomically(self.script.with_suffix(".number"), number + "\n")

    def job(self, place: int) -> tuple[Job, int]:
        """The job of a task, and the devices that it has."""
        table = json.loads(self.script.with_suffix(".json").read_text(encoding="utf-8"))
        return _of_json(table["jobs"][place]), int(table["devices"])


def exit_code(job: Job) -> int | None:
    """Of a job that has ended and said so; None before."""
    try:
        return int(_code_file(job).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def keep_exit_code(job: Job, code: int | None) -> None:
    """Write down how a job has ended; None where it begins again."""
    if code is None:
        _code_file(job).unlink(missing_ok=True)
    else:
        write_atomically(_code_file(job), f"{code}\n")


def tasks_of(job: Job) -> list[str]:
    """Every task, as Slurm writes it (123_4), that was submitted to work on the job's run."""
    found = []
    for number in sorted(_folder(job).glob("array-*.number")):
        table = json.loads(number.with_suffix(".json").read_text(encoding="utf-8"))
        places = [place for place, one in enumerate(table["jobs"]) if one["name"] == job.name]
        found += [f"{number.read_text(encoding='utf-8').strip()}_{place}" for place in places]
    return found


def _folder(job: Job) -> Path:
    return job.log.parents[1] / "slurm"


def _code_file(job: Job) -> Path:
    return _folder(job) / f"{job.name}.code"


def _script(script: Path, jobs: Sequence[Job], settings: SlurmSettings) -> str:
    """Our process takes the shell's place, so that it is the one that Slurm signals."""
    limit = f"%{settings.at_once}" if settings.at_once else ""
    asked = {
        "job-name": "normscope",
        "array": f"0-{len(jobs) - 1}{limit}",
        "cpus-per-task": max(job.threads for job in jobs),
        "gpus": settings.gpus or "",
        "partition": settings.partition,
        "account": settings.account,
        "time": settings.time,
        "mem": settings.memory,
        "signal": f"B:TERM@{settings.seconds_to_save}",
        "chdir": jobs[0].directory,
        "output": script.with_name("%A_%a.txt"),
    }
    lines = [f"--{key}={shlex.quote(str(value))}" for key, value in asked.items() if value != ""]
    lines += ["--requeue", "--open-mode=append", *settings.options]
    command = [sys.executable, "-m", "normscope.engines.array_task", str(script)]
    return "\n".join(
        ["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), f'exec {shlex.join(command)} "$SLURM_ARRAY_TASK_ID"', ""]
    )


def _as_json(job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "words": list(job.words),
        "directory": str(job.directory),
        "folder": str(job.folder),
        "log": str(job.log),
        "threads": job.threads,
    }


def _of_json(table: dict[str, Any]) -> Job:
    paths = {name: Path(table[name]) for name in ("directory", "folder", "log")}
    return Job(name=table["name"], words=table["words"], threads=table["threads"], **paths)
