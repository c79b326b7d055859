"""Runs that several processes train together, and what may happen to one of them.

The processes are started as torchrun starts them: `torchrun` by itself, and `forked_ones`, which
saves the seconds that importing torch takes. As a program this is the command line in a dtype of
its own, whose process may meet a fault.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file

import forked
from normscope.runs.config import load
from normscope.runs.run import train_run

ON_A_CLUSTER = "NORMSCOPE_CLUSTER" in os.environ
"""Whether `make test-cluster` asks for what takes long."""
FAULTS = ("kill", "stop", "exception", "nan")
_QUIET = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
_DTYPE, _FAULT = "TOGETHER_DTYPE", "TOGETHER_FAULT"
_STORES: list[dist.TCPStore] = []
_OURS = re.compile("(stopped|error|process|interrupted)")

OWN = '''"""A model nobody ships, whose targets are of unequal number."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        options = {"dropout": 0.1, "batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(16, 2, 32, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, 11)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)))


def build():
    return Reader()


def groups(model):
    slow = list(model.embed.parameters())
    others = [one for name, one in model.named_parameters() if not name.startswith("embed")]
    return [{"params": slow, "lr_factor": 0.5}, {"params": others}]


def batches(number):
    x = torch.randint(11, (4, 6))
    y = (3 * x + 1) % 11
    y[0, : number % 5] = -100
    return x, y


def validation():
    return [batches(number) for number in range(3)]
'''


@dataclass(frozen=True, slots=True)
class Ended:
    """What a launcher, and all that it had started, have left."""

    code: int
    """Of the launcher; of forked processes, that of the first."""
    codes: tuple[int, ...]
    """Of forked processes, by rank."""
    said: str

    def lines_of_ours(self) -> list[str]:
        """Lines that are not of torchrun's own report, nor of the display."""
        return [line for line in self.said.splitlines() if _OURS.match(line)]


def words_of(run: Path, settings: Sequence[str], config: Path | None = None) -> list[str]:
    """The command line that trains a run."""
    words = ["train", "--run", str(run)]
    if config is not None:
        words.insert(1, str(config))
    for setting in settings:
        words += ["--set", setting]
    return words


def fault(kind: str, *, rank: int = 1, batch: int = 9) -> dict[str, str]:
    """The variables by which the process of a rank meets a fault at its first micro-batch of this
    number or a later one.
    """
    return {_FAULT: f"{kind}:{rank}:{batch}"}


def torchrun(size: int, words: Sequence[str], **environment: str) -> "subprocess.Popen[str]":
    """Starts as many processes with these words of the command line."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    return subprocess.Popen(
        [sys.executable, "-P", *launcher, __file__, "--", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # The test imports torch before the command line can say it.
        env={**os.environ, **_QUIET, **environment},
        start_new_session=True,
    )


def ended(process: "subprocess.Popen[str]", seconds: float = 240.0) -> Ended:
    """Waits until all is over; what is not over then is killed, which fails the test."""
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return Ended(process.returncode, (), said)


def forked_ones(
    size: int, words: Sequence[str], dtype: str = "float32", **environment: str
) -> list[forked.Forked]:
    """Starts as many processes; the store that torchrun would keep is kept here."""
    store = new_store()
    started = []
    for rank in range(size):
        own = {**variables(rank, size, store), _DTYPE: dtype, **environment}
        started.append(forked.call(_command, list(words), own))
    return started


def new_store() -> dist.TCPStore:
    """Returns a store as torchrun keeps one, which lives as long as this process."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    _STORES.append(store)
    return store


def variables(rank: int, size: int, store: dist.TCPStore) -> dict[str, str]:
    """Returns what torchrun sets for a process."""
    return {
        **_QUIET,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def all_ended(processes: Sequence[forked.Forked], seconds: float = 120.0) -> Ended:
    """Waits until all have ended; those that have not then are killed, which fails the test.

    Who was halted ends too: unlike torchrun, nothing here ends it.
    """
    try:
        until = time.monotonic() + seconds
        for process in processes:
            while process.poll() is None:
                if time.monotonic() > until:
                    raise subprocess.TimeoutExpired("processes of one run", seconds)
                time.sleep(0.05)
    except subprocess.TimeoutExpired:
        for process in processes:
            if process.poll() is None:
                process.kill()
        raise
    codes = tuple(process.wait() for process in processes)
    said = ""
    for process in processes:
        for stream in process.communicate():
            said += stream.decode()
    return Ended(codes[0], codes, said)


def trained(
    size: int, run: Path, settings: Sequence[str], dtype: str = "float32", **environment: str
) -> Ended:
    """Trains a run in as many processes."""
    done = all_ended(forked_ones(size, words_of(run, settings), dtype, **environment))
    assert set(done.codes) == {0}, done.said
    return done


def weights(run: Path, update: int) -> dict[str, torch.Tensor]:
    """The weights that a run has kept of an update."""
    return load_file(run / "checkpoints" / f"step-{update}" / "model.safetensors")


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest difference of an entry, of sizes around 1 and below.

    Key biases are left out: they add the same to all scores of a query, so that their gradients are
    rounding alone, of which Adam makes steps as large as any.
    """
    assert one.keys() == other.keys()
    # Of torch's own attention they are the middle third of one parameter.
    names = [name for name in one if not name.endswith(("key.bias", "in_proj_bias"))]
    return max(float((one[name] - other[name]).abs().max()) for name in names)


def tell_threads(run: Path, settings: Sequence[str], environment: dict[str, str]) -> None:
    """Trains a run in this process, one of several, and prints the names of its threads then."""
    os.environ.update(environment)
    train_run(load(None, settings), run)
    for file in Path("/proc/self/task").glob("*/comm"):
        print(file.read_text().strip())


def _command(words: Sequence[str], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    sys.argv = ["normscope", *words]

    _program()


def _meet(kind: str, at: int) -> None:
    """Have this process meet a fault in the backward pass of a micro-batch."""
    from normscope.errors import UserError
    from normscope.train.together.gradients import SharedGradients

    backward = SharedGradients._backward

    def faulty(self: Any, number: int, batch: Any, tokens: int, weight: float) -> Any:
        if number < at:
            return backward(self, number, batch, tokens, weight)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "exception":
            raise ArithmeticError("a fault of the test")
        if kind == "user-error":
            raise UserError("a file of this machine alone is missing")
        if kind == "nan":
            weight = nan
        return backward(self, number, batch, tokens, weight)

    SharedGradients._backward = faulty  # type: ignore[method-assign]


def _program() -> None:
    torch.set_default_dtype(getattr(torch, os.environ.get(_DTYPE, "float32")))
    kind, rank, at = os.environ.get(_FAULT, "none:0:0").split(":")
    if kind != "none" and os.environ.get("RANK") == rank:
        _meet(kind, int(at))
    from normscope.__main__ import main

    main()


if __name__ == "__main__":
    _program()
