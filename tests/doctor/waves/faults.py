"""Forty-eight faults of blocks of 2026, dealt into four waves before the first was run.

`python tests/doctor/waves/faults.py 1` runs the first wave with the doctor as it is: faults that a
finding at warning or above is right about, and twins of which one is told.
"""

import random
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from doctor.waves import around, of_attention, of_branches
from doctor.waves.case import Fault, found, says

FAULTS: list[Fault] = [*of_attention.FAULTS, *of_branches.FAULTS, *around.FAULTS]
WAVES, SEED = 4, 2026


def dealt() -> list[list[Fault]]:
    """The four waves, each a quarter of all."""
    order = list(FAULTS)
    random.Random(SEED).shuffle(order)
    size = len(order) // WAVES
    return [order[first : first + size] for first in range(0, len(order), size)]


def run(wave: int) -> None:
    right = 0
    faults = dealt()[wave - 1]
    for fault in faults:
        told, of_twin = found(fault.bug()), found(fault.twin())
        hit = any(says(fault, one) for one in told)
        right += hit
        print("found " if hit else "MISSED", fault.title)
        for one in told:
            print(f"    {one.severity} {one.id} @ {one.where[:70]}: {one.message[:260]}")
        for one in of_twin:
            print(f"    TWIN {one.severity} {one.id} @ {one.where[:70]}: {one.message[:260]}")
    print(f"wave {wave}: {right} of {len(faults)}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for number in sys.argv[1:]:
        run(int(number))
