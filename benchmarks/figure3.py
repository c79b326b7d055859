"""What the gradient norm of every parameter costs over a plain forward and backward, at the paper's
size on one thread.

    python benchmarks/figure3.py [--rounds 9] [--quick] [--json FILE]

All arms run in one process on the same batch and take turns, the first of a round being another
each time; what is compared are ratios within a round. Times are the process's CPU time: on a shared
core that leaves out the time that neighbours took.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from normscope.measure import gradient_norms
from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.model.linear import fast_matmul
from normscope.tasks.loss import smoothed_cross_entropy
from normscope.train.device import keep_freed_memory
from step_systems import (
    BLOCKS,
    FFN_WIDTH,
    HEADS,
    SMOOTHING,
    VOCABULARY,
    WIDTH,
    Batch,
    make_step_batches,
)

DROPOUT = 0.1
TARGET = 1.05
"""Times a plain forward and backward, at most."""
Norms = dict[str, float]
Step = Callable[[EncoderDecoder, Batch], Norms]


def plain(model: EncoderDecoder, batch: Batch) -> Norms:
    """Gradients of the mean loss per target token."""
    model.zero_grad()
    source, target = Layout(batch.source_lengths_B), Layout(batch.target_lengths_B)
    target_M = target.pack(batch.target_BT)
    hidden_MD = model(source.pack(batch.source_BS), source, target_M, target)
    loss, _ = smoothed_cross_entropy(hidden_MD, model.output_rows(), target_M, SMOOTHING)
    (loss / batch.target_tokens).backward()  # type: ignore[no-untyped-call]
    return {}


def ours(model: EncoderDecoder, batch: Batch) -> Norms:
    plain(model, batch)
    return gradient_norms(model)


def one_by_one(model: EncoderDecoder, batch: Batch) -> Norms:
    plain(model, batch)
    return {
        n: torch.nn.utils.get_total_norm([p.grad]).item()
        for n, p in model.named_parameters()
        if p.grad is not None
    }


def hooked(model: EncoderDecoder, batch: Batch) -> Norms:
    found: Norms = {}

    def record(name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        found[name] = parameter.grad.norm().item()

    handles = [
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: record(name, p))  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters()
    ]
    plain(model, batch)
    for handle in handles:
        handle.remove()
    return found


ARMS: dict[str, Step] = {
    "forward and backward alone": plain,
    "NormScope, `gradient_norms`": ours,
    "torch, a hook on every parameter": hooked,
    "torch, `get_total_norm` of every parameter": one_by_one,
}


def measure(model: EncoderDecoder, batch: Batch, rounds: int) -> dict[str, list[float]]:
    """Seconds of each arm, one entry a round. Raises AssertionError where two arms find other
    norms.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ARMS}
    for number in range(
        -1, rounds
    ):  # the round before the first lets the allocator meet every shape
        order = list(ARMS)[number % len(ARMS) :] + list(ARMS)[: number % len(ARMS)]
        found: dict[str, Norms] = {}
        for name in order:
            torch.manual_seed(number + 1)  # the same dropout masks, and so the same norms
            started = time.process_time()
            found[name] = ARMS[name](model, batch)
            if number >= 0:
                seconds[name].append(time.process_time() - started)
        _compare([norms for norms in found.values() if norms])
    return seconds


def _compare(found: list[Norms]) -> None:
    first = found[0]
    for norms in found[1:]:
        assert norms.keys() == first.keys()
        assert all(abs(norms[name] - value) <= 1e-4 * value + 1e-9 for name, value in first.items())


def norm_seconds(model: EncoderDecoder, calls: int) -> float:
    """Of `gradient_norms` alone, with gradients in place: the median call."""
    found = []
    for _ in range(calls):
        started = time.process_time()
        gradient_norms(model)
        found.append(time.process_time() - started)
    return statistics.median(found)


def report(seconds: dict[str, list[float]], alone: float) -> dict[str, Any]:
    """Print the table and the verdict; return them as JSON."""
    base = next(iter(seconds.values()))
    rows: list[dict[str, Any]] = []
    print(f"{'arm':46}{'seconds':>9}{'ratio':>8}{'from':>8}{'to':>8}")
    for name, values in seconds.items():
        ratios = sorted(value / plain for value, plain in zip(values, base, strict=True))
        ratio, low, high = (
            statistics.median(ratios),
            ratios[len(ratios) // 4],
            ratios[-1 - len(ratios) // 4],
        )
        print(f"{name:46}{statistics.median(values):9.3f}{ratio:8.3f}{low:8.3f}{high:8.3f}")
        rows.append(
            {
                "arm": name,
                "seconds": values,
                "ratio": ratio,
                "lower_quartile": low,
                "upper_quartile": high,
            }
        )
    share = alone / statistics.median(base)
    print(f"gradient_norms alone: {1000 * alone:.1f} ms, {share:.2%} of a forward and backward")
    reached = rows[1]["ratio"] <= TARGET
    print(f"at most {TARGET} times a forward and backward: {'reached' if reached else 'missed'}")
    return {
        "arms": rows,
        "norms_alone_seconds": alone,
        "norms_alone_share": share,
        "reached": reached,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=9, help="timed turns of every arm (default 9)"
    )
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    keep_freed_memory()
    fast_matmul(torch.device("cpu"))
    config = ModelConfig(
        placement="post-ln",
        width=WIDTH,
        ffn_width=FFN_WIDTH,
        heads=HEADS,
        encoder_blocks=BLOCKS,
        decoder_blocks=BLOCKS,
        dropout=DROPOUT,
        initialisation="paper",
    )
    torch.manual_seed(0)
    model, (batch,) = EncoderDecoder(config, VOCABULARY, VOCABULARY).train(), make_step_batches(1)
    seconds = measure(model, batch, 1 if options.quick else options.rounds)
    result = report(seconds, norm_seconds(model, 20))
    if options.json:
        machine = {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
        options.json.write_text(
            json.dumps({"environment": machine} | result, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
