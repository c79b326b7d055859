"""Run work in a child and see every operation under a folder before it happens, or make one of them
fail.
"""

from collections.abc import Callable
from pathlib import Path

from .notified import Call, Ended, run
from .operations import NUMBERS, Operation, operations_of
from .places import Place, Placed

Decide = Callable[[Place, Operation], int | None]
"""Called with an operation and its place; the error number that it shall fail with, or None."""


def watched(
    work: Callable[[], object],
    folder: Path,
    said: Path,
    decide: Decide,
    *,
    begun: Callable[[int], None] = lambda pid: None,
    over: Callable[[], bool] = lambda: False,
) -> Ended:
    """Call `work` in a child and `decide` each of its operations under `folder`, until `over` says
    so.
    """
    folder, placed = folder.resolve(), Placed()

    def answer(call: Call) -> int | None:
        for operation in () if over() else operations_of(call, folder):
            if (error := decide(placed(operation), operation)) is not None:
                return error
        return None

    return run(work, said, numbers=NUMBERS.values(), answer=answer, begun=begun)


def recorded(work: Callable[[], object], folder: Path, said: Path) -> tuple[Ended, list[Operation]]:
    """Call `work` in a child; returns its end and all that it did under `folder`."""
    operations: list[Operation] = []

    def note(place: Place, operation: Operation) -> None:
        operations.append(operation)

    return watched(work, folder, said, note), operations
