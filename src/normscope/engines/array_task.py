"""A task of a Slurm array: `python -m normscope.engines.array_task SCRIPT TASK`."""

import os
import subprocess
import sys
from pathlib import Path

from ..signals import Stopped, raising_stopped
from .array import Array, keep_exit_code
from .tasks import run_job


def main() -> None:
    """Run the job. Asked to end while its time is not up, or shortly before it is, it saves and queues again."""
    job, devices = Array(Path(sys.argv[1])).job(int(sys.argv[2]))
    keep_exit_code(job, None)
    try:
        with raising_stopped():
            code = run_job(job, devices)
    except Stopped as stop:
        code = stop.exit_code
        if _queues_again():
            return
    keep_exit_code(job, code)
    sys.exit(code)


def _queues_again() -> bool:
    """Have Slurm start this task again, unless it was cancelled or Slurm does so by itself."""
    number = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    asked = ["squeue", "--noheader", f"--jobs={number}", "--format=%T"]
    state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if state != "RUNNING":
        return False
    return subprocess.run(["scontrol", "requeue", number], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main()
