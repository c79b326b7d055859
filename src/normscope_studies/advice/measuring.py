"""Many cases measured in several processes of one thread each, in their order."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from normscope.train.device import available_cores, keep_freed_memory

from ..engine.pieces import Pieces

_Made = TypeVar("_Made")


def side_by_side(
    make: Callable[[Any, Pieces], _Made], items: Sequence[Any], *, processes: int, pieces: Pieces, stage: str
) -> list[_Made]:
    """`make` of every item, each in one of several processes of one thread; what they measure is kept as it is made.

    processes: at a time; 0 for as many as there are cores.
    """
    processes = min(processes or available_cores(), max(1, len(items)))
    if processes == 1:
        return _in_turn(make, items, pieces, stage)
    # Spawned: a forked process would inherit torch's threads half-way.
    found: list[_Made] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_prepare) as pool:
        for one in pool.map(partial(_made, make, pieces.folder), items):
            found.append(one)
            pieces.watch(stage, len(found), len(items))
    return found


def _in_turn(make: Callable[[Any, Pieces], _Made], items: Sequence[Any], pieces: Pieces, stage: str) -> list[_Made]:
    threads = torch.get_num_threads()
    _prepare()
    try:
        return [make(item, pieces) for item in pieces.each(stage, items)]
    finally:
        torch.set_num_threads(threads)


def _made(make: Callable[[Any, Pieces], _Made], folder: Path, item: Any) -> _Made:
    return make(item, Pieces(folder))


def _prepare() -> None:
    # One thread gives the same bits wherever a case is measured.
    torch.set_num_threads(1)
    keep_freed_memory()
