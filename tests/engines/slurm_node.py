"""A Slurm of one machine, this one, with all its files in one folder."""

import os
import platform
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=20
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
"""A job that is queued again waits for `cred_expire`: two minutes, where nothing is said."""
ENDING_SECONDS = 30
"""A little more than `KillWait`."""


def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    absent = [name for name in COMMANDS if shutil.which(name, path=_path()) is None]
    if absent:
        return f"Slurm is not installed ({', '.join(absent)}): Debian has it in slurm-wlm and munge"
    return "" if os.geteuid() == 0 else "Slurm's daemons are started by root"


@contextmanager
def running(folder: Path, cores: int) -> Iterator[dict[str, str]]:
    """What its commands need in their environment."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    for above in (folder, *folder.parents):
        above.chmod(above.stat().st_mode | 0o011)  # munge wants a socket that everybody reaches
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    text = CONFIGURATION.format(
        folder=folder,
        host=platform.node().partition(".")[0],
        cores=cores,
        controller_port=_free_port(),
        daemon_port=_free_port(),
    )
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
    munge = [
        f"--{name}={folder}/munge.{name.partition('-')[0]}"
        for name in ("socket", "pid-file", "log-file")
    ]
    commands = [
        [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--seed-file={folder}/munge.seed",
            *munge,
        ],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            started.append(subprocess.Popen(command, env=os.environ | environment, **quiet))
            time.sleep(0.5)
        _until_idle(environment)
        yield environment
    finally:
        # slurmd ends when its jobs have, and they need the other daemons for that.
        _cancel_all(environment)
        for daemon in reversed(started):
            daemon.terminate()
            try:
                daemon.wait(timeout=ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _cancel_all(environment: dict[str, str]) -> None:
    """Returns when no job is left, or when they take too long to end."""
    end, asking = (
        time.monotonic() + ENDING_SECONDS,
        {"env": os.environ | environment, "check": False},
    )
    subprocess.run(["scancel", "--me"], **asking)
    while time.monotonic() < end:
        asked = subprocess.run(["squeue", "--noheader"], capture_output=True, **asking)
        if asked.returncode or not asked.stdout.strip():
            return
        time.sleep(0.2)


def _until_idle(environment: dict[str, str]) -> None:
    end, command = time.monotonic() + 60, ["sinfo", "-h", "-o", "%T"]
    while True:
        asked = subprocess.run(
            command, env=os.environ | environment, capture_output=True, check=False
        )
        if asked.stdout.strip() == b"idle":
            return
        assert time.monotonic() < end, "Slurm's node does not come up"
        time.sleep(0.2)


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port
