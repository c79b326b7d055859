"""The doctor's diagnosis of models on the device, beside the CPU's of the same weights and
inputs.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import normscope
from gpu.part import Arm, Measured, NotInstalled, Part, Row, Where
from gpu.timing import peak_mb, set_precision, synchronise

ON_CPU = " on the CPU"
Made = tuple[nn.Module, dict[str, Tensor]]


def _arms(where: Where) -> dict[str, Arm]:
    makes: dict[str, Callable[[Where], Made]] = {
        "GPT-2 of transformers": _gpt2,
        "torch.nn.Transformer": _torch,
    }
    cpu = Where(device=torch.device("cpu"), quick=where.quick)
    return {
        f"{name}{place}": partial(_diagnosed, on, make)
        for name, make in makes.items()
        for place, on in (("", where), (ON_CPU, cpu))
    }


def _gpt2(where: Where) -> Made:
    """124 million parameters."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ModuleNotFoundError:
        raise NotInstalled("transformers is not installed") from None
    sizes: dict[str, Any] = (
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50} if where.quick else {}
    )
    model = GPT2LMHeadModel(GPT2Config(**sizes, n_positions=1024))
    return model, {
        "input_ids": torch.randint(model.config.vocab_size, (2, 8 if where.quick else 128))
    }


def _torch(where: Where) -> Made:
    width, heads, blocks = (16, 2, 2) if where.quick else (512, 8, 6)
    model = nn.Transformer(width, heads, blocks, blocks, 2 * width, batch_first=True)
    return model, {name: torch.randn(2, 8 if where.quick else 64, width) for name in ("src", "tgt")}


def _diagnosed(where: Where, make: Callable[[Where], Made]) -> Measured:
    set_precision(where, "fp32")
    torch.manual_seed(1)
    model, inputs = make(where)
    model = model.to(where.device)
    inputs = {name: value.to(where.device) for name, value in inputs.items()}
    if where.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(where.device)
    synchronise(where)
    begun = time.perf_counter()
    found = normscope.diagnose(model, inputs).to_json()
    synchronise(where)
    return {
        "seconds": time.perf_counter() - begun,
        "peak_mb": peak_mb(where),
        "findings": sorted(f"{finding['id']} {finding['where']}" for finding in found["findings"]),
        "placements": [stack["placement"] for stack in found["stacks"]],
        "measured": [value for stack in found["stacks"] for value in _numbers(stack["sublayers"])],
    }


def _numbers(value: Any) -> Iterator[float]:
    """All numbers of a table, in its order."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)
    elif isinstance(value, float):
        yield value


def _rows(arms: Mapping[str, Measured]) -> Iterator[Row]:
    for name, one in arms.items():
        row: Row = {"diagnosis": name, "seconds": one["seconds"], "peak MB": one["peak_mb"]}
        other = arms.get(f"{name}{ON_CPU}")
        if other is not None:
            same = all(one[what] == other[what] for what in ("findings", "placements"))
            row["findings and placements"] = "the CPU's" if same else "others"
            row["largest deviation"] = _deviation(one["measured"], other["measured"])
        yield row


def _deviation(some: list[float], others: list[float]) -> float:
    """The largest of the differences, each beside the larger of 1 and the number itself; infinite
    for other numbers.
    """
    if len(some) != len(others):
        return math.inf
    return max(
        (abs(a - b) / max(1.0, abs(b)) for a, b in zip(some, others, strict=True)), default=0.0
    )


DOCTOR = Part(arms=_arms, rows=_rows)
