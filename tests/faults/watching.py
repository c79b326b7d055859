"""Run work in a child and see every operation under a folder before it happens, or make one of them fail."""

from collections.abc import Callable
from pathlib import Path

from .notified import Call, Ended, run
from .operations import NUMBERS, Operation, operations_of

Decide = Callable[[int, Operation], int | None]
"""Called with an operation and its number from 0; the error number that it shall fail with, or None."""


def watched(
    work: Callable[[], object],
    folder: Path,
    said: Path,
    decide: Decide,
    *,
    begun: Callable[[int], None] = lambda pid: None,
) -> Ended:
    """Call `work` in a child and `decide` each of its operations under `folder`."""
    folder, seen = folder.resolve(), 0

    def answer(call: Call) -> int | None:
        nonlocal seen
        for operation in operations_of(call, folder):
            error = decide(seen, operation)
            seen += 1
            if error is not None:
                return error
        return None

    return run(work, said, numbers=NUMBERS.values(), answer=answer, begun=begun)


def recorded(work: Callable[[], object], folder: Path, said: Path) -> tuple[Ended, list[Operation]]:
    """Call `work` in a child; returns its end and all that it did under `folder`."""
    operations: list[Operation] = []

    def note(number: int, operation: Operation) -> None:
        operations.append(operation)

    return watched(work, folder, said, note), operations
