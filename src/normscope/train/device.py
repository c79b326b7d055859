"""The device, the precision and the random numbers of a run, and their record in
`environment.json`.

Nothing here happens on import; the loop calls each function once, and writes down what it returned.
Random numbers are derived from the run's seed and the number of the batch: there is nothing to save
and nothing to restore.
"""

import ctypes
import os
import platform
import random
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..errors import UserError, user_errors
from ..processes.surroundings import launched_together
from ..provenance import provenance

Precision = Literal["fp32", "tf32", "bf16"]


def choose_device(name: str = "auto") -> torch.device:
    """`auto` is the first CUDA device, or else the CPU; other names are torch's. Raises UserError
    for an absent one.
    """
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    with user_errors(
        RuntimeError, said=lambda _: f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N"
    ):
        device = torch.device(name)
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device {name!r} is not supported; choose auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"no device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices; use auto or "
            "cpu"
        )
    return device


def own_device(device: torch.device) -> torch.device:
    """Returns the device of this process: of those that torchrun has started on a machine, each has
    a CUDA device of its own. Raises UserError where there are too few.
    """
    if device.type != "cuda" or launched_together() == 1:
        return device
    local = int(os.environ["LOCAL_RANK"])
    if local >= torch.cuda.device_count():
        raise UserError(
            f"this machine has {torch.cuda.device_count()} CUDA devices, too few for process "
            f"{local} of those on it: start as many processes as there are devices, or set "
            "train.device to cpu"
        )
    return torch.device("cuda", local)


def available_cores() -> int:
    """Cores that this process may use."""
    # macOS has no affinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


THREADS = "OMP_NUM_THREADS"
"""The environment variable that sets how many threads a process may compute in: by OpenMP's rules
the first of several numbers is that of the outermost loops.
"""


def allowed_threads() -> int:
    """Threads that this process may compute in: as many as cores, and no more than OMP_NUM_THREADS
    says where that is a whole number from 1.
    """
    said = os.environ.get(THREADS, "").partition(",")[0].strip()
    given = int(said) if said.isascii() and said.isdecimal() and len(said) < 9 else 0
    return min(given, available_cores()) if given else available_cores()


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """fp32, tf32: as written. bf16: factors and results of products in bfloat16; weights and sums
    stay float32.
    """
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def refuse_precision(device: torch.device, precision: Precision) -> None:
    """Raise UserError for a precision that the device's products do not have."""
    if precision == "tf32" and device.type != "cuda":
        raise UserError(
            f'precision "tf32" is of CUDA devices, and this is {device}; choose fp32 or bf16'
        )


def prepare_cuda(precision: Precision, *, deterministic: bool) -> None:
    """Set for this process how CUDA multiplies float32 matrices, and whether kernels without fixed
    bits are allowed.

    tf32: factors have 11 significant bits, sums 24. Both settings are made whatever they were
    before, so that a run computes as its configuration says and not as the run before it did.
    """
    # torch's older name for it: torch.compile asks by that name, and a mixture of both names is an
    # error.
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if deterministic:
        # cuBLAS reads it when it is first used; where that was earlier, torch refuses the first
        # product and says this.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>


def keep_freed_memory() -> bool:
    """Has the C library keep freed memory for the next allocation; returns False where it has no
    such setting (not glibc).

    By default glibc gives large blocks back to the system at once, and every step pays again for
    the zeroing of the same pages: a tenth of a step and more. The process then keeps its peak,
    which is reached after a few steps.
    """
    return _set_thresholds(2**31 - 1)


def give_back_freed_memory() -> bool:
    """Has the C library return every large block to the system when it is freed; returns False
    where it has no such setting.

    For a model in shards: what is put together and taken apart, block by block, would leave holes
    of which no two fit together, and with them more memory than the shards save.
    """
    return _set_thresholds(2**20)


def _set_thresholds(size: int) -> bool:
    """size: in bytes, of blocks that are given back."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, size)) and bool(mallopt(_M_MMAP_THRESHOLD, size))


_BINDING = "data_fingerprint seed run vocabularies_sha256"
_MACHINE = "python torch platform processor cores threads device accelerator fast_matmul"
KEYS: frozenset[str] = frozenset(f"normscope source_sha256 commit {_MACHINE} {_BINDING}".split())
"""The keys of `environment.json`: those that `describe` returns, and those that bind the run's
files together.
"""
OPTIONAL_KEYS: frozenset[str] = frozenset({"made_from", "instructions", "processes"})
"""`made_from` is of runs that an earlier version made of other weights."""


def describe(
    *, device: torch.device, seed: int, data_fingerprint: str, fast_matmul: bool
) -> dict[str, Any]:
    """Returns the versions, hardware, threads, data and seed: with the configuration, all that a
    run's numbers depend on.
    """
    return {
        **provenance(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else "",
        "fast_matmul": fast_matmul,
        "data_fingerprint": data_fingerprint,
        "seed": seed,
    }


def changes_of_machine(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns the changes of the machine since the run began that can change its bits, one line
    each.
    """
    keys: tuple[str, ...] = (
        "torch",
        "processor",
        "threads",
        "device",
        "accelerator",
        "fast_matmul",
    )
    # A processor of the same name may be told to use fewer of its instructions; earlier versions
    # did not record them.
    keys += ("instructions",) if "instructions" in before else ()
    found = [
        f"{key}: {before.get(key)} -> {now[key]}" for key in keys if before.get(key) != now[key]
    ]
    # Of a run that one process began, or goes on with, nothing says so.
    processes = before.get("processes", 1), now.get("processes", 1)
    if processes[0] != processes[1]:
        found.append(f"processes: {processes[0]} -> {processes[1]}")
    return found


def change_of_source(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns the change of this package's source; empty where it is the same.

    By commits where they tell the two apart, and by hashes of the source otherwise.
    """
    if before.get("source_sha256") == now["source_sha256"]:
        return ""
    old, new = _commit(before), _commit(now)
    if old and new and old != new:
        return f"commit {old} → {new}"
    return (
        f"SHA-256 {(before.get('source_sha256') or 'not recorded')[:12]} → "
        f"{now['source_sha256'][:12]}"
    )


def _commit(environment: dict[str, Any]) -> str:
    """Returns the commit, abbreviated, with its mark of modified files; empty where there was
    none.
    """
    commit, _, modified = str(environment.get("commit", "")).partition(" ")
    return " ".join(filter(None, (commit[:12], modified)))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


_DROPOUT = 1
_WEIGHTS = 2
_DATA = 3


def seed_weights(seed: int) -> None:
    """Seed torch's generators for drawing the initial weights."""
    torch.manual_seed(_derive(seed, _WEIGHTS, 0))


def seed_micro_batch(seed: int, number: int) -> None:
    """Seed torch's generators for the dropout of one batch, counted over all epochs."""
    torch.manual_seed(_derive(seed, _DROPOUT, number))


def seed_data(*numbers: int) -> None:
    """Seed torch, numpy and `random` for code of a user's that draws data: of a batch by its seed
    and number.
    """
    derived = _derive(numbers[0], _DATA, *numbers[1:])
    torch.manual_seed(derived)
    np.random.seed(derived % 2**32)
    random.seed(derived)


def _derive(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
