"""`python -m faults.attack KIND WORK…`: attacks on the package that PYTHONPATH names, and how many ends are wrong."""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .bench import Bench
from .flipping import flips
from .injection import errors
from .power_cut import power_cuts
from .stopping import stops
from .verdicts import Verdict, counted
from .works import WORKS

KINDS: dict[str, Callable[..., Iterator[Verdict]]] = {
    "power-cut": power_cuts,
    "errors": errors,
    "stops": stops,
    "flips": flips,
}


def attacked(place: Path, kind: str, work: str, options: dict[str, int]) -> None:
    """For `forked.call`: print all verdicts as JSON."""
    bench = Bench(place)
    print(json.dumps([verdict.line() for verdict in KINDS[kind](bench, WORKS[work], **options)]))


def attack() -> None:
    """Print a line for every wrong end and the numbers for every work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("works", nargs="*", default=list(WORKS))
    parser.add_argument("--every", type=int, default=1, help="take one fault of so many")
    parser.add_argument("--offset", type=int, default=0, help="the first one to take")
    parser.add_argument("--out", type=Path, help="file of all verdicts, one line of JSON each")
    given = parser.parse_args()
    # In memory where the system lets us: nothing waits for a disk there.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() and os.access(memory, os.W_OK) else None) as place:
        bench = Bench(Path(place))
        for name in given.works:
            began, verdicts = time.monotonic(), []
            for verdict in KINDS[given.kind](bench, WORKS[name], every=given.every, offset=given.offset):
                verdicts.append(verdict)
                if verdict.problem:
                    print(f"  {verdict.problem}: {verdict.fault}: {verdict.detail}", flush=True)
                if given.out is not None:
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(verdict.line()) + "\n")
            print(f"{given.kind} {name}: {counted(verdicts)} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    attack()
