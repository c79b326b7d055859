"""What a sweep takes before it begins: its operations, and the memory of a run beside its device's.

A run that cannot fit is refused before any other begins.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..errors import UserError
from ..report.words import counted, significant
from ..runs.machine import Plan, plan
from .grid import Cell

_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory that runs have."""

    memory_bytes: int
    """Of the device."""
    share: float
    """Of it that a run may take."""
    together: int
    """Runs that share it."""
    name: str

    @property
    def run_bytes(self) -> float:
        """What one run may take."""
        return self.share * self.memory_bytes


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

    left: runs, each with its updates to come; one of each placement and optimiser stands for its
    rates and seeds. room: None where they train on machines that are not
    known here. What is not known of a run is said to be so. Raises UserError where a run cannot
    fit.
    """
    plans: dict[tuple[str, str], Plan | None] = {}
    unknown, operations = 0, 0.0
    largest: tuple[Cell, Plan] | None = None
    for cell, updates in left:
        key = (cell.arm.placement, cell.arm.optimizer)
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


def _planned(cell: Cell) -> Plan | None:
    """None where it cannot be planned, as of a model that is not followed in slices."""
    try:
        return plan(cell.config)
    except UserError:
        return None


def _memory_of(cell: Cell, planned: Plan, room: Room | None) -> str:
    """What is said of the run that takes most. Raises UserError where it cannot fit."""
    needed = f"{planned.sum / _GB:.3g} GB"
    if room is None:
        return f"a run takes {needed} of memory at most, beside the libraries"
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
