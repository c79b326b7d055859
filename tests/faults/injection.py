"""Errors: every operation of a work fails in turn, once or from then on, with every number that it
may fail with.
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from .bench import Bench
from .disk import Tree
from .operations import CHANGING, LOOKING, SYNCING, Operation
from .places import Place, taken
from .verdicts import Trial, Verdict, difference, goes_on, left_over, without_superseded, wrong_end
from .works import Work, whole_checkpoints

_GROWING = ("create", "write", "make folder", "rename", "link", *SYNCING)
_INTERRUPTIBLE = ("open", "create", "open to write", "read", "write", "lock", *SYNCING)
MAY_FAIL = {
    "ENOSPC": _GROWING,
    "EDQUOT": _GROWING,
    "EIO": (*CHANGING, *SYNCING, *LOOKING),
    "EROFS": (*CHANGING, "open to write"),
    "EINTR": _INTERRUPTIBLE,
}
"""Error numbers, and the kinds of operations that they come from."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An operation fails, the first of its kind to do so by its number."""

    place: Place
    error: str
    lasting: bool
    """Every later one that may fail so fails too."""

    def __str__(self) -> str:
        return f"{self.error} {'from' if self.lasting else 'at'} {self.place}"

    def hits(self, place: Place, operation: Operation, before: bool) -> bool:
        """before: whether it has hit an operation before this one."""
        return place == self.place or (
            self.lasting and before and operation.kind in MAY_FAIL[self.error]
        )


def faults(operations: Sequence[Operation], places: Mapping[int, Place]) -> Iterator[Fault]:
    """All at the places; an interrupted call is never interrupted for good."""
    for number, place in places.items():
        for error, kinds in MAY_FAIL.items():
            if operations[number].kind in kinds:
                for lasting in (False, True) if error != "EINTR" else (False,):
                    yield Fault(place, error, lasting)


def errors(
    bench: Bench, work: Work, *, every: int = 1, offset: int = 0, alike: bool = False
) -> Iterator[Trial]:
    """Every `every`th fault, to be judged; alike: of operations that do the same, the first and the
    last.
    """
    wanted, _, operations = bench.undisturbed(work)
    for fault in list(faults(operations, taken(operations, alike=alike)))[offset::every]:
        yield Trial(str(fault), partial(_one, bench, work, wanted, fault))


def _one(bench: Bench, work: Work, wanted: Tree, fault: Fault) -> Verdict:
    bench.lay(bench.start(work))
    hit: list[Operation] = []
    whole = -1

    def decide(place: Place, operation: Operation) -> int | None:
        nonlocal whole
        if not fault.hits(place, operation, bool(hit)):
            return None
        if not hit:
            whole = whole_checkpoints(bench.state())
        hit.append(operation)
        return int(getattr(errno, fault.error))

    try:
        ended = bench.disturb(work, decide, over=lambda: bool(hit) and not fault.lasting)
    except TimeoutError as error:
        return Verdict(work.name, str(fault), "hangs", str(error)[-300:])
    after = bench.state()
    name = f"{fault}{f': {hit[0]}' if hit else ', not reached'}"
    # A comparison whose run fails ends with 1.
    problem, detail = wrong_end(ended, after, (0, 1, 2) if work.name == "compare" else (0, 2))
    if problem:
        return Verdict(work.name, name, problem, detail)
    if whole_checkpoints(after) < whole:
        return Verdict(work.name, name, "lost", f"checkpoint {whole}")
    # What the disk did not let it remove goes with the next one of its kind, and so does the old
    # folder beside the new one whose name may not be on disk: to remove it then could lose both.
    unremoved = fault.lasting or (bool(hit) and hit[0].kind in ("remove", "remove folder"))
    if ended.code and not unremoved and (left := left_over(without_superseded(after))):
        return Verdict(work.name, name, "left over", left)
    if not ended.code and not (unremoved and left_over(after)):
        return Verdict(work.name, name, *difference(work.result(after), wanted))
    verdict = goes_on(bench, work, wanted, name)
    said = next((line for line in ended.said.splitlines() if line.startswith("error: ")), "")
    return replace(verdict, detail=verdict.detail or said)
