"""Where and how precisely a run computes: device, threads, precision, and the allocator's habits.

Nothing here happens on import; the loop calls each function once, and writes down what it returned.
"""

import ctypes
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from ..errors import UserError

Precision = Literal["fp32", "tf32", "bf16"]


def choose_device(name: str = "auto") -> torch.device:
    """`auto` is the first CUDA device, or else the CPU; other names are torch's. Raises UserError for an absent one."""
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device {name!r} is not supported; choose auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"no device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices; use auto or cpu")
    return device


def available_cores() -> int:
    """Cores that this process may use."""
    # macOS has no affinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(threads: int) -> None:
    """Let CPU operations of this process use `threads` threads. Results may differ in the last bit between counts."""
    if threads < 1:
        raise UserError(f"threads must be at least 1, got {threads}")
    torch.set_num_threads(threads)


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """fp32, tf32: as written. bf16: factors and results of products in bfloat16; weights and sums stay float32."""
    if precision in ("fp32", "tf32"):
        return nullcontext()
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    raise UserError(f"unknown precision {precision!r}; choose fp32, tf32 or bf16")


def refuse_precision(device: torch.device, precision: Precision) -> None:
    """Raise UserError for a precision that the device's products do not have."""
    if precision == "tf32" and device.type != "cuda":
        raise UserError(f'precision "tf32" is of CUDA devices, and this is {device}; choose fp32 or bf16')


def prepare_cuda(precision: Precision, *, deterministic: bool) -> None:
    """Set for this process how CUDA multiplies float32 matrices, and whether kernels without fixed bits are allowed.

    tf32: factors have 11 significant bits, sums 24. Both settings are made whatever they were before, so that a run
    computes as its configuration says and not as the run before it did.
    """
    # torch's older name for it: torch.compile asks by that name, and a mixture of both names is an error.
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if deterministic:
        # cuBLAS reads it when it is first used; where that was earlier, torch refuses the first product and says this.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next allocation; False where it has no such setting (not glibc).

    By default glibc gives large blocks back to the system at once, and every step pays again for the zeroing of the
    same pages: a tenth of a step and more. The process then keeps its peak, which is reached after a few steps.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    largest = 2**31 - 1
    return bool(mallopt(_M_TRIM_THRESHOLD, largest)) and bool(mallopt(_M_MMAP_THRESHOLD, largest))
