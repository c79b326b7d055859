"""Where and how precisely a run computes: device, threads, products in float32, autocast, and the allocator's habits.

Nothing here happens on import; the loop calls each function once, and writes down what it returned.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import UserError

Precision = Literal["fp32", "bf16"]

FP32_ERROR_BOUND = 2.0**-16
"""Largest relative error (Frobenius norm, against float64) that still counts as a float32 product.

Sums of K = 512 random terms in float32 err by about √K · 2^-24 = 2^-19.5 at most. Factors rounded to TF32 or bfloat16
err by 2^-11.4 and 2^-8.4, whatever K is: the bound lies well between.
"""


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


@dataclass(frozen=True, slots=True)
class FastMatmul:
    """Whether float32 products go through oneDNN, and the relative error found there (None where it was not tried)."""

    on: bool
    error: float | None


def fast_matmul(device: torch.device) -> FastMatmul:
    """Send float32 products of this process to oneDNN if they stay float32 there; the caller records the outcome.

    torch's default, MKL, reaches 40 % of the peak of an AMD CPU, oneDNN 80 to 90 %. torch's name for the route is
    `fp32_precision = "bf16"`, the permission to compute in bfloat16. oneDNN uses that permission only where it pays,
    which is where the CPU has AMX; so products of every layout that training uses are compared with float64 first, and
    an error above FP32_ERROR_BOUND leaves torch as it was. The decision depends on the CPU and torch alone, never on a
    timing. Results differ from MKL's by rounding: a run is repeatable to the bit under the same outcome only.
    """
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return FastMatmul(False, None)
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    error = max(_error(product) for product in _PRODUCTS)
    if error > FP32_ERROR_BOUND:
        matmul.fp32_precision = before
        return FastMatmul(False, error)
    return FastMatmul(True, error)


_PRODUCTS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a @ b.T.contiguous().T,  # forward: weights are (out, in)
    lambda a, b: a @ b,  # gradient in the input
    lambda a, b: a.T.contiguous().T @ b,  # gradient in the weight
    lambda a, b: (a.view(4, 128, 512) @ b[None].expand(4, -1, -1)).view(512, 512),  # attention
)


def _error(product: Callable[[Tensor, Tensor], Tensor]) -> float:
    generator = torch.Generator().manual_seed(0)  # its own: the run's random numbers must not depend on this check
    a, b = (torch.randn(512, 512, generator=generator, dtype=torch.float64) for _ in range(2))
    a, b = a.float(), b.float()
    exact = a.double() @ b.double()
    return float((product(a, b).double() - exact).norm() / exact.norm())


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """fp32: as written. bf16: factors and results of products in bfloat16; weights and sums stay float32."""
    if precision == "fp32":
        return nullcontext()
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    raise UserError(f"unknown precision {precision!r}; choose fp32 or bf16")


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
