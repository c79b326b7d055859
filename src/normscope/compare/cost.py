"""The cost of a sweep before it begins: its operations, and the memory of a run compared with its
device's.

A run that cannot fit is refused before any other begins.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch

from ..engines.choosing import EngineSettings
from ..engines.opening import room_asked
from ..engines.seam import Engine
from ..errors import UserError
from ..report.words import counted, significant
from ..runs.machine import Plan, plan
from ..settings.tables import as_json, as_table
from ..tasks.protocol import AnyCorpus
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from .grid import Cell
from .pool import needs_of, threads_of

_GB = 1e9
_LONG_SECONDS = 1.0
WORTH_PLANNING_SECONDS = 600.0
"""The shortest duration of a sweep that is planned: planning takes a second for each of its
configurations.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory that runs have."""

    memory_bytes: int
    """The memory of the device."""
    share: float
    """The share of it that a run may take."""
    together: int
    """Runs that share it."""
    name: str

    @property
    def run_bytes(self) -> float:
        """The bytes that one run may take."""
        return self.share * self.memory_bytes


def trial_seconds(config: RunConfig, corpus: AnyCorpus) -> float:
    """Time of one batch of a training on the CPU, forward and backward, in the threads of a run."""
    task = task_of(config)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads_of(config))
    try:
        model, batch = task.build(config, corpus.codec), task.batches(config, corpus)(0)
        model.train()
        seconds = _LONG_SECONDS
        # A first pass is slow; where a pass is long it need not be repeated.
        for _ in range(3):
            begun = time.perf_counter()
            batch.loss(batch.run(model)).backward()  # type: ignore[no-untyped-call]
            last, seconds = seconds, time.perf_counter() - begun
            if seconds > _LONG_SECONDS:
                break
    finally:
        torch.set_num_threads(threads)
    return min(last, seconds)


def is_worth_planning(left: Sequence[tuple[Cell, int]], at_once: int | None) -> bool:
    """Tells whether runs take so long that planning them is worth its seconds: on this machine's
    CPU by the time of one batch of the largest model, and on other devices always.

    left: as of `sweep_cost`. at_once: runs at a time; None where that is not known.
    """
    largest = max((cell.config for cell, _ in left), key=_size)
    if at_once is None or largest.train.device != "cpu":
        return True
    corpus: AnyCorpus = task_of(largest).open(largest)
    seconds = trial_seconds(largest, corpus) * largest.train.accumulation
    updates = [updates for _, updates in left]
    return seconds * max(sum(updates) / at_once, *updates) >= WORTH_PLANNING_SECONDS


def _size(config: RunConfig) -> int:
    """Grows with the parameters of a model; 0 of one that says nothing of it."""
    sizes = {field.name: getattr(config.model, field.name) for field in fields(config.model)}
    blocks = sum(size for name, size in sizes.items() if name.endswith("blocks"))
    return int(blocks * sizes.get("width", 0) ** 2)


def told_cost(left: Sequence[tuple[Cell, int]], settings: EngineSettings, engine: Engine) -> str:
    """Returns what runs take that an engine is to be given, as `sweep_cost`. Raises UserError where
    a run cannot fit.
    """
    config = left[0][0].config
    if settings.elsewhere:
        machine = engine.largest_machine()
        if machine is None:
            return sweep_cost(left, None)
        room = Room(memory_bytes=machine.memory_bytes, share=1.0, together=1, name=machine.words)
    else:
        share, devices = room_asked(settings, needs_of(config))
        at_once = engine.at_once or 1
        room = room_on(config.train.device, share=share, at_once=at_once, devices=devices)
    return sweep_cost(left, _shared_out(room, config, settings))


def _shared_out(room: Room, config: RunConfig, settings: EngineSettings) -> Room:
    """Returns the room of each process of a run: on CPUs processes share a machine's memory, and
    each of them builds the whole model; on GPUs each has its own.
    """
    processes = settings.processes_per_run
    if processes == 1 or config.train.device.startswith("cuda"):
        return room
    return replace(room, share=room.share / processes, together=room.together * processes)


def room_on(device: str, *, share: float, at_once: int, devices: int) -> Room:
    """Returns the memory that runs of this machine have.

    device: as torch names it. share: of a GPU that a run is given; 0 where nothing is said.
    at_once: runs at a time, on so many devices.
    """
    if torch.device(device).type == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES")
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        return Room(memory_bytes=memory, share=1.0, together=at_once, name="this machine")
    found = torch.cuda.get_device_properties(torch.device(device))
    return Room(
        memory_bytes=found.total_memory,
        share=share or 1.0,
        together=-(-at_once // max(1, devices)),
        name=found.name,
    )


def sweep_cost(left: Sequence[tuple[Cell, int]], room: Room | None) -> str:
    """Returns in a sentence what runs take that are not over.

    left: runs, each with its updates to come; one stands for all that differ in rate, warm-up and
    seed alone. room: None where they train on machines of which nothing is known here. What is not
    known of a run is said to be so. Raises UserError where a run cannot fit.
    """
    plans: dict[str, Plan | None] = {}
    unknown, operations = 0, 0.0
    largest: tuple[Cell, Plan] | None = None
    for cell, updates in left:
        key = _planned_alike(cell)
        if key not in plans:
            plans[key] = _planned(cell)
        planned = plans[key]
        if planned is None:
            unknown += 1
            continue
        operations += planned.flops_per_update * updates
        if largest is None or planned.sum > largest[1].sum:
            largest = (cell, planned)
    if largest is None:
        return "what these runs take in memory and arithmetic is not known"
    said = _memory_of(*largest, room)
    if unknown:
        said += f"; of {counted(unknown, 'run')} neither is known"
    return f"together {significant(operations, 3)} floating-point operations; {said}"


def _planned_alike(cell: Cell) -> str:
    """Returns a key that runs with the same plan share: all of the configuration that can change a
    tensor.
    """
    sections = as_table(cell.config)
    for name in ("seed", "schedule"):
        sections.pop(name, None)
    optimizer = {**sections["optimizer"], "peak_lr": None}
    train = {**sections["train"], "duration": None}
    return as_json({**sections, "optimizer": optimizer, "train": train})


def _planned(cell: Cell) -> Plan | None:
    """Plans a run; None where it cannot be planned, as for a model that cannot be followed in
    slices.
    """
    threads = torch.get_num_threads()  # which planning sets to those of the run
    try:
        return plan(cell.config)
    except UserError:
        return None
    finally:
        torch.set_num_threads(threads)


def _memory_of(cell: Cell, planned: Plan, room: Room | None) -> str:
    """Returns the memory of the run that takes most, in words. Raises UserError where it cannot
    fit.
    """
    needed = f"{planned.sum / _GB:.3g} GB"
    if room is None:
        return (
            f"a run takes {needed} of memory at most, beside the libraries; what the machines have "
            "is not known here"
        )
    there = f"the {room.memory_bytes / _GB:.3g} GB of {room.name}"
    if planned.sum > room.run_bytes:
        allowed = there
        if room.share < 1:
            allowed = f"a share of {room.share:g} of {there}"
        raise UserError(
            f"{cell.name} cannot be trained here: weights, gradients, optimiser and activations of "
            f"a batch take {needed}, and it has {allowed}; make its batches smaller and "
            "train.accumulation as much larger, or its model, or leave it out. Nothing has begun"
        )
    said = f"a run takes {needed} of {there} at most, beside the libraries"
    if planned.sum * room.together > room.memory_bytes:
        said += (
            f"; {room.together} together may not fit, and fewer at a time do with --processes "
            "(processes in Python)"
        )
    return said
