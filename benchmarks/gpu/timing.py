"""Seconds of a step, the rate of a large product, and where the time of a step goes."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from gpu.part import Measured, Where
from normscope.train.device import Precision, prepare_cuda

Step = Callable[[Any], object]
DATA_SHEET: dict[Precision, float] = {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4}
"""TFLOP/s without sparsity of the H100 SXM5: NVIDIA H100 Tensor Core GPU Architecture, table 2. The
H200's data sheet has the same, doubled by sparsity where that is possible (1,979 in bf16)."""
ON_DATA_SHEET = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""As torch names them; those for PCIe slots have other rates."""


def set_precision(where: Where, precision: Precision) -> None:
    """Have this process multiply float32 matrices so; what bf16 needs beside it is autocast."""
    if where.device.type == "cuda":
        prepare_cuda(precision, deterministic=False)


def synchronise(where: Where) -> None:
    """Wait for the device to have done all that it was given."""
    if where.device.type == "cuda":
        torch.cuda.synchronize(where.device)


def timed(where: Where, step: Step, batches: Sequence[Any], *, seconds: float = 2.0) -> Measured:
    """Median seconds of a pass over the batches with its quartiles, by the clock, and the device's
    peak of memory.

    Two passes go before, in which kernels are chosen and compiled. Passes are timed for so many
    seconds, five at least; the device is waited for at the end of each pass alone, so that it may
    work while the next step is prepared.
    """
    for batch in (*batches, *batches):
        step(batch)
    synchronise(where)
    if where.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(where.device)
    passes: list[float] = []
    least = 2 if where.quick else 5
    while len(passes) < least or (sum(passes) < seconds and not where.quick):
        begun = time.perf_counter()
        for batch in batches:
            step(batch)
        synchronise(where)
        passes.append(time.perf_counter() - begun)
    low, middle, high = statistics.quantiles(passes, n=4)
    return {
        "seconds": middle,
        "quartiles": [low, high],
        "passes": len(passes),
        "peak_mb": peak_mb(where),
    }


def peak_mb(where: Where) -> float | None:
    """The most that torch's allocator had given out since it was last asked to forget; None on a
    CPU.
    """
    return (
        torch.cuda.max_memory_allocated(where.device) / 1e6 if where.device.type == "cuda" else None
    )


def product_rate(where: Where, precision: Precision) -> Measured:
    """TFLOP/s of a product of two large square matrices of random numbers, and what the data sheet
    says.
    """
    set_precision(where, precision)
    size, repeats = (128, 2) if where.quick else (8192, 20)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=where.device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    found = timed(where, lambda _: torch.mm(a, b, out=out), range(repeats), seconds=1.0)
    on_sheet = (
        where.device.type == "cuda" and torch.cuda.get_device_name(where.device) in ON_DATA_SHEET
    )
    return {
        "tflops": 2 * size**3 * repeats / found["seconds"] / 1e12,
        "data_sheet_tflops": DATA_SHEET[precision] if on_sheet else None,
    }


def profiled(where: Where, step: Step, batches: Sequence[Any], *, most: int = 25) -> Measured:
    """Where the time of a pass goes: the share in which the device had work, and what took most of
    it.
    """
    for batch in (*batches, *batches):
        step(batch)
    synchronise(where)
    cuda = where.device.type == "cuda"
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    ) as found:
        begun = time.perf_counter()
        for batch in batches:
            step(batch)
        synchronise(where)
        seconds = time.perf_counter() - begun
    times = [
        (
            event.key,
            (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e6,
            event.count,
        )
        for event in found.key_averages()
        # What asked for a kernel has its time too, and so has a range of the optimiser's.
        if not cuda or (event.device_type.name == "CUDA" and not event.is_user_annotation)
    ]
    longest = sorted(times, key=lambda one: one[1], reverse=True)[:most]
    return {
        "seconds": seconds,
        "busy_share": sum(one[1] for one in times) / seconds,
        "longest": [
            {"operation": name, "seconds": of, "calls": calls} for name, of, calls in longest
        ],
    }
