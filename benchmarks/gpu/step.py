"""A training step of one family of models: NormScope's and its peers', in three precisions,
compiled and not.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from gpu.part import Arm, Measured, Part, Row, Where
from gpu.systems import Family, System
from gpu.timing import Step, product_rate, profiled, set_precision, timed
from normscope.runs.machine import counting
from normscope.train.device import Precision, autocast

PRECISIONS: tuple[Precision, ...] = ("bf16", "tf32", "fp32")


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a system's step is taken."""

    system: str
    precision: Precision
    tokens: int
    """Of a batch."""
    compiled: bool = False
    fused: bool = True
    """Adam in one kernel, or in torch's default of several for many tensors each."""
    batches: Literal["on the device", "from pinned memory", "from ordinary memory"] = (
        "on the device"
    )

    def __str__(self) -> str:
        more = [
            *(["compiled"] if self.compiled else []),
            *([] if self.fused else ["Adam not fused"]),
        ]
        more += [f"batches {self.batches}"] if self.batches != "on the device" else []
        return ", ".join([self.system, self.precision, f"{self.tokens:,} tokens", *more])


def part(family: Callable[..., Family]) -> Part:
    """A part of that family's steps."""
    return Part(arms=partial(_arms, family), rows=_rows)


def _arms(make: Callable[..., Family], where: Where) -> dict[str, Arm]:
    family = make(quick=where.quick)
    # TF32 is of CUDA alone.
    cuda = where.device.type == "cuda"
    precisions = [precision for precision in PRECISIONS if cuda or precision != "tf32"]
    ours, first_peer, *_ = family.make
    usual, *larger = family.tokens
    one = Way(system=ours, precision="bf16", tokens=usual)
    compiled = [replace(one, tokens=tokens, compiled=True) for tokens in family.tokens]
    first = [replace(one, system=system) for system in (ours, first_peer)] + compiled
    first += [
        replace(one, tokens=tokens, system=system)
        for tokens in larger
        for system in (ours, first_peer)
    ]
    profiles = [compiled[-1], one]
    ways = [
        replace(one, system=first_peer, compiled=True),
        *(replace(one, system=s) for s in family.make),
    ]
    ways += [
        replace(one, precision=precision, system=s)
        for precision in precisions[1:]
        for s in family.make
    ]
    ways += [replace(one, fused=False)]
    ways += [
        replace(one, batches="from pinned memory"),
        replace(one, batches="from ordinary memory"),
    ]
    ways += [
        replace(one, system=system, compiled=True)
        for system in family.make
        if system not in (ours, first_peer)
    ]
    ways += [replace(one, precision=precision, compiled=True) for precision in precisions[1:]]
    if where.quick:
        # Compiling takes longer than all the rest of a quick trial.
        first, profiles, ways = (
            [way for way in some if not way.compiled] for some in (first, profiles, ways)
        )
    # What matters most, then what takes longest, which nothing is begun behind that may take as
    # long.
    arms: dict[str, Arm] = {"product bf16": partial(product_rate, where, "bf16")}
    arms |= {
        f"operations, {tokens:,} tokens": partial(_operations, family, where, tokens)
        for tokens in family.tokens
    }
    arms |= {str(way): partial(_timed, family, where, way) for way in first}
    arms |= {f"profile of {way}": partial(_profiled, family, where, way) for way in profiles}
    arms |= {
        f"product {precision}": partial(product_rate, where, precision)
        for precision in precisions[1:]
    }
    return arms | {
        str(way): partial(_timed, family, where, way) for way in ways if str(way) not in arms
    }


def _timed(family: Family, where: Where, way: Way) -> Measured:
    step, batches = _made(family, where, way)
    found = timed(where, step, batches)
    tokens = sum(map(family.tokens_of, batches))
    return {"precision": way.precision, "batch_tokens": way.tokens, "tokens": tokens} | found


def _profiled(family: Family, where: Where, way: Way) -> Measured:
    return profiled(where, *_made(family, where, way))


def _operations(family: Family, where: Where, tokens: int) -> Measured:
    """Floating-point operations of a pass, as `normscope train --dry-run` counts them: of
    NormScope's step, which computes nothing for padding but in the scores of attention."""
    step, batches = _made(
        family, where, Way(system=next(iter(family.make)), precision="bf16", tokens=tokens)
    )
    with counting() as counted:
        for batch in batches:
            step(batch)
    return {"operations": counted.get_total_flops()}


def _made(family: Family, where: Where, way: Way) -> tuple[Step, list[Any]]:
    """The step, and the batches of a pass where they are to be."""
    set_precision(where, way.precision)
    torch.manual_seed(1)
    system: System = family.make[way.system]()
    module = system.module.to(where.device).train()
    forward: Any = torch.compile(module, dynamic=True) if way.compiled else module
    make = torch.optim.AdamW if family.decay else torch.optim.Adam
    optimizer = make(module.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=way.fused)

    def step(batch: Any) -> Tensor:
        if way.batches == "from pinned memory":
            batch = batch.to(where.device)
        elif way.batches == "from ordinary memory":
            batch = _from_ordinary_memory(batch, where.device)
        optimizer.zero_grad()
        with autocast(where.device, way.precision):
            loss = system.loss(forward, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    batches = family.batches(way.tokens)
    return step, batches if way.batches != "on the device" else [
        batch.to(where.device) for batch in batches
    ]


def _from_ordinary_memory(batch: Any, device: torch.device) -> Any:
    """What a batch's own `to` does, but for the memory that the copy is made from."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    sent = {
        n: v.to(device)
        for n, v in values.items()
        if isinstance(v, Tensor) and not n.endswith("lengths_B")
    }
    return replace(batch, **sent)


def _rows(arms: Mapping[str, Measured]) -> Iterator[Row]:
    """Beside the second system of the same precision and batch: its rate, and model FLOPs
    utilisation (MFU) by the product that was measured and by the data sheet."""
    timings = {name: one for name, one in arms.items() if "tokens" in one}
    for name, one in timings.items():
        precision, tokens = one["precision"], one["batch_tokens"]
        peer = arms.get(f"transformers, {precision}, {tokens:,} tokens")
        row: Row = {
            "step": name,
            "tokens/s": one["tokens"] / one["seconds"],
            "peak MB": one["peak_mb"],
        }
        row["× transformers"] = peer["seconds"] / one["seconds"] if peer else None
        operations, product = (
            arms.get(f"operations, {tokens:,} tokens"),
            arms.get(f"product {precision}"),
        )
        if operations and product:
            rate = operations["operations"] / one["seconds"] / 1e12
            row["TFLOP/s"] = rate
            row["MFU %"] = 100 * rate / product["tflops"]
            sheet = product["data_sheet_tflops"]
            row["MFU % of the data sheet"] = 100 * rate / sheet if sheet else None
        yield row
