"""`python -m faults.attack KIND WORK…`: attacks on the package that PYTHONPATH names, and how many
ends are wrong.
"""

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
from .verdicts import Trial, Verdict, counted
from .works import WORKS

KINDS: dict[str, Callable[..., Iterator[Trial]]] = {
    "power-cut": power_cuts,
    "errors": errors,
    "stops": stops,
    "flips": flips,
}


def attacked(place: Path, kind: str, work: str, options: dict[str, int]) -> None:
    """For `forked.call`: print all verdicts as JSON."""
    trials = KINDS[kind](Bench(place), WORKS[work], **options)
    print(json.dumps([trial.judged().line() for trial in trials]))


def attack() -> None:
    """Print a line for every wrong end and the numbers for every work. Goes on where an earlier
    call was stopped.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("works", nargs="*", default=list(WORKS))
    parser.add_argument("--every", type=int, default=1, help="take one fault of so many")
    parser.add_argument(
        "--alike",
        action="store_true",
        help="of operations that do the same, the first and the last",
    )
    parser.add_argument("--offset", type=int, default=0, help="the first one to take")
    parser.add_argument(
        "--folder", type=Path, default=Path(".faults"), help="all verdicts, KIND-WORK.jsonl"
    )
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    # In memory where the system lets us: nothing waits for a disk there.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    ) as place:
        bench = Bench(Path(place))
        options = {"every": given.every, "offset": given.offset} | (
            {"alike": True} if given.alike else {}
        )
        for name in given.works:
            began = time.monotonic()
            file = given.folder / f"{given.kind}-{name}.jsonl"
            known = _judged(file)
            before = len(known)
            for trial in KINDS[given.kind](bench, WORKS[name], **options):
                if trial.fault in known:
                    continue
                known[trial.fault] = verdict = trial.judged()
                if verdict.problem:
                    print(f"  {verdict.problem}: {verdict.fault}: {verdict.detail}", flush=True)
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps({"trial": trial.fault, **verdict.line()}) + "\n")
            seconds = time.monotonic() - began
            print(
                f"{given.kind} {name}: {counted(known.values())} ({before} before, {seconds:.0f} "
                "s)",
                flush=True,
            )


def _judged(file: Path) -> dict[str, Verdict]:
    """What earlier calls found right, by the trial; what they found wrong is tried again."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    found = [(line.pop("trial"), Verdict(**line)) for line in map(json.loads, lines)]
    return {trial: verdict for trial, verdict in found if not verdict.problem}


if __name__ == "__main__":
    attack()
