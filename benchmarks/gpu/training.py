"""The whole of a training by `train_run`, with batches, checks and metrics: its rate, and which
bits come again.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpu.part import Arm, Measured, Part, Row, Where
from gpu.timing import peak_mb, product_rate
from normscope.runs.config import load
from normscope.runs.machine import plan
from normscope.runs.run import train_run
from normscope.tasks.registry import task_of
from normscope.tasks.run_config import RunConfig
from normscope.train.device import Precision

FIXED = ("train.deterministic=true",)
AGAIN, GONE_ON = ", again", ", stopped in the middle and gone on with"


def _arms(where: Where) -> dict[str, Arm]:
    precisions: tuple[Precision, ...] = (
        ("bf16", "tf32", "fp32") if where.device.type == "cuda" else ("bf16", "fp32")
    )
    arms: dict[str, Arm] = {
        f"product {precision}": partial(product_rate, where, precision) for precision in precisions
    }
    arms["operations"] = partial(_operations, where)
    ways: dict[str, tuple[Precision, tuple[str, ...]]] = {
        "bf16": ("bf16", ()),
        "bf16, deterministic": ("bf16", FIXED),
        f"bf16, deterministic{AGAIN}": ("bf16", FIXED),
        f"bf16, deterministic{GONE_ON}": ("bf16", FIXED),
        f"bf16{AGAIN}": ("bf16", ()),
        "bf16, no process that prepares batches": ("bf16", ("train.input_workers=0",)),
        **{precision: (precision, ()) for precision in precisions[1:]},
        "fp32, deterministic": ("fp32", FIXED),
    }
    if not where.quick:
        ways["bf16, compiled"] = "bf16", ("train.compile=true",)
    for name, (precision, more) in ways.items():
        arms[name] = partial(_trained, where, precision, more, stopped=name.endswith(GONE_ON))
    return arms


def _config(where: Where, updates: int, *more: str) -> RunConfig:
    sizes = (
        {"width": 16, "ffn_width": 32, "heads": 2, "encoder_blocks": 1, "decoder_blocks": 1}
        if where.quick
        else {}
    )
    return load(
        None,
        [
            'model.preset="paper"',
            *(f"model.{name}={size}" for name, size in sizes.items()),
            f"data.max_tokens={128 if where.quick else 4096}",
            f"data.toy_pairs={300 if where.quick else 20_000}",
            f'train.device="{where.device}"',
            f"train.threads={1 if where.device.type == 'cpu' else 4}",
            f"train.duration={updates}",
            "train.validate_every=10000",
            "train.checkpoint_every=10000",
            *more,
        ],
    )


def _operations(where: Where) -> Measured:
    """For a target token, by the dry run's count of an update."""
    config = _config(where, 1)
    task = task_of(config)
    objective: Any = task.objective(config, task.open(config), where.device)
    tokens = objective.target_tokens(objective.micro_batch(0))
    return {"operations": plan(config).flops_per_update / tokens}


def _trained(
    where: Where, precision: Precision, more: tuple[str, ...], *, stopped: bool
) -> Measured:
    """Tokens a second over the second half of the updates, the peak of memory, and a hash of what
    the run has left.
    """
    updates = 8 if where.quick else 120
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        for last in [updates // 2] * stopped + [updates]:
            config = _config(where, last, f'train.precision="{precision}"', *more)
            train_run(config, folder, listeners=[events.append])
        left = [
            folder / "checkpoints" / f"step-{updates}" / "model.safetensors",
            folder / "metrics.jsonl",
        ]
        bits = hashlib.sha256(b"".join(file.read_bytes() for file in left)).hexdigest()
    half = [event for event in events if event["event"] == "update"][-updates // 2 :]
    seconds = half[-1]["elapsed_seconds"] - half[0]["elapsed_seconds"]
    tokens = sum(event["target_tokens"] for event in half[1:])
    return {
        "precision": precision,
        "tokens_per_second": tokens / seconds,
        "peak_mb": peak_mb(where),
        "bits": bits,
    }


def _rows(arms: Mapping[str, Measured]) -> Iterator[Row]:
    """bits: whether a second training, or one that was stopped and gone on with, has left the same
    bytes.
    """
    for name, one in arms.items():
        if "bits" not in one:
            continue
        product, operations = arms.get(f"product {one['precision']}"), arms.get("operations")
        row: Row = {
            "training": name,
            "tokens/s": one["tokens_per_second"],
            "peak MB": one["peak_mb"],
        }
        if product and operations:
            rate = operations["operations"] * one["tokens_per_second"] / 1e12
            row["MFU %"] = 100 * rate / product["tflops"]
        without, first = (
            name.removesuffix(", deterministic"),
            name.removesuffix(AGAIN).removesuffix(GONE_ON),
        )
        if without != name and without in arms:
            row["times as long as without"] = (
                arms[without]["tokens_per_second"] / one["tokens_per_second"]
            )
        if first != name and first in arms:
            row["bits"] = "the same" if one["bits"] == arms[first]["bits"] else "others"
        yield row


TRAINING = Part(arms=_arms, rows=_rows)
