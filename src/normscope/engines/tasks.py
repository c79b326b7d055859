"""What a worker of a cluster does: a job as a process of its own, which saves whenever the worker ends."""

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..processes.surroundings import interpreter, is_held, with_lifeline
from .processes import in_threads
from .seam import Job

_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 600.0
"""For a process that had the run before, and saves, to let go of its folder."""
LOCKED = 75
"""The exit code where it has not, as of a command that may be tried again (EX_TEMPFAIL)."""


def run_job(job: Job, devices: int) -> int:
    """Run the job to its end; its exit code. devices: processes of one training, 0 for one.

    KeyboardInterrupt, by which a cluster cancels, is passed on as a wish to save. Should this process be killed, the
    job's sees its end of a pipe close, and saves and ends.
    """
    patience = time.monotonic() + _PATIENCE_SECONDS
    while is_held(job.folder):
        if time.monotonic() > patience:
            note(job, f"{job.folder} is still being trained by another process")
            return LOCKED
        time.sleep(_LOOK_SECONDS)
    with job.log.open("ab") as log:
        process = subprocess.Popen(
            [*interpreter(), *with_devices(job.words, devices)],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            cwd=job.directory,
            env=with_lifeline(os.environ | in_threads(job.threads)),
            start_new_session=True,
        )
    try:
        while (code := process.poll()) is None:
            time.sleep(_LOOK_SECONDS)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        if process.stdin is not None:
            process.stdin.close()
    return code


def with_devices(words: Sequence[str], devices: int) -> list[str]:
    """A job's words, on several devices where it is a training that has several."""
    several = devices > 1 and list(words[:3]) == ["-m", "normscope", "train"]
    return [*words, "--devices", str(devices)] if several else list(words)


def seen_from_here(files: Sequence[Path]) -> dict[str, Any]:
    """What this machine sees of files that were just written elsewhere, and who says so; None of what it does not."""
    contents: list[str | None] = []
    for file in files:
        try:
            contents.append(file.read_text(encoding="utf-8"))
        except OSError:
            contents.append(None)
    return {"host": socket.gethostname(), "contents": contents, "normscope": __version__}


def note(job: Job, line: str) -> None:
    """Add a line to what a job has said."""
    with job.log.open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")
