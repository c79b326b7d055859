"""Ninety-six faults, dealt into eight waves before the first of each deal was run.

`python tests/doctor/waves/faults.py 1` runs the first wave with the doctor as it is: faults that a
finding at warning or above is right about, and twins of which one is told.
"""

import random
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from doctor.waves import (
    around,
    of_afterwards,
    of_attention,
    of_branches,
    of_context,
    of_numbers,
    of_pairs,
    of_pictures,
)
from doctor.waves.case import Fault, found, says

FIRST: list[Fault] = [*of_attention.FAULTS, *of_branches.FAULTS, *around.FAULTS]
"""Of the blocks of 2026."""
SECOND: list[Fault] = [
    *of_context.FAULTS,
    *of_numbers.FAULTS,
    *of_pairs.FAULTS,
    *of_pictures.FAULTS,
]
"""Of what a model is given, of what it is asked for, and of how it is trained."""
THIRD: list[Fault] = of_afterwards.FAULTS
"""Written down once the waves of the second deal had been mended."""
FAULTS = [*FIRST, *SECOND, *THIRD]
SIZE, SEED = 12, 2026


def dealt() -> list[list[Fault]]:
    """Four waves of the first faults, three of the second, and the last."""
    waves = []
    for faults in (FIRST, SECOND, THIRD):
        order = list(faults)
        random.Random(SEED).shuffle(order)
        waves += [order[first : first + SIZE] for first in range(0, len(order), SIZE)]
    return waves


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
