"""Power cuts: every state that the recorded operations of a work may leave, and the same command
after it.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePosixPath

from .bench import Bench
from .disk import Replay, Tree, fates
from .operations import Operation
from .places import taken
from .verdicts import Trial, Verdict, goes_on
from .works import Work, whole_checkpoints


def power_cuts(
    bench: Bench,
    work: Work,
    *,
    every: int = 1,
    offset: int = 0,
    alike: bool = False,
    draws: int = 1,
) -> Iterator[Trial]:
    """Each different state after every `every`th cut, to be judged; `draws` more fates by chance
    for each.

    alike: after operations that do the same, after the first and the last.
    """
    wanted, before, operations = bench.undisturbed(work)
    replay = Replay(before, operations)
    if replay.end != bench.state():
        raise RuntimeError(f"{work.name}: not all that it wrote was seen")
    seen: set[str] = set()
    numbers = {0, *(number + 1 for number in taken(operations, alike=alike))}
    for cut in [cut for cut in replay.cuts if cut in numbers][offset::every]:
        for name, fate in fates(cut, draws):
            state = replay.after(cut, fate)
            fault = (
                f"power cut {cut} after {operations[cut - 1] if cut else 'nothing'}; the rest: "
                f"{name}"
            )
            lost = promised(operations[:cut]) > whole_checkpoints(state)
            if lost or (digest := _digest(state)) not in seen:
                yield Trial(
                    f"cut {cut}, {name}",
                    partial(_one, bench, work, wanted, fault, None if lost else state),
                )
            if not lost:
                seen.add(digest)


def _one(bench: Bench, work: Work, wanted: Tree, fault: str, state: Tree | None) -> Verdict:
    if state is None:
        return Verdict(work.name, fault, "lost", "a checkpoint that was saved")
    bench.lay(state)
    return goes_on(bench, work, wanted, fault)


def promised(operations: Sequence[Operation]) -> int:
    """The last update whose checkpoint was in its place when its folder was synchronised; -1 for
    none.
    """
    placed: dict[str, int] = {}
    kept = -1
    for operation in operations:
        if operation.kind == "rename" and (found := re.search(r"^[^.]*/step-(\d+)$", operation.to)):
            placed[str(PurePosixPath(operation.to).parent)] = int(found[1])
        if operation.kind == "sync folder":
            kept = max(kept, placed.get(operation.path, -1))
    return kept


def _digest(state: Tree) -> str:
    digest = hashlib.sha256()
    for path, content in state:
        digest.update(
            f"{path}\0{-1 if content is None else len(content)}\0".encode() + (content or b"")
        )
    return digest.hexdigest()
