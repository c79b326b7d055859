"""Measuring many cases in several processes of one thread each."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from normscope.train.device import available_cores, keep_freed_memory

from ..engine.pieces import Pieces
from .facts import use_one_thread

Made = TypeVar("Made")


def side_by_side(
    make: Callable[[Any, Pieces], Made], items: Sequence[Any], *, processes: int, pieces: Pieces, stage: str
) -> list[Made]:
    """`make` of every item, each in one of several processes of one thread; what they measure is kept as it is made.

    processes: at a time; 0 for as many as there are cores.
    """
    processes = min(processes or available_cores(), max(1, len(items)))
    if processes == 1:
        return _in_turn(make, items, pieces, stage)
    # Spawned: a forked process would inherit torch's threads half-way.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_prepare) as pool:
        waiting = {pool.submit(_made, make, item, pieces.folder): place for place, item in enumerate(items)}
        found: dict[int, Made] = {}
        pieces.watch(stage, 0, len(items))
        for done in as_completed(waiting):
            found[waiting[done]] = done.result()
            pieces.watch(stage, len(found), len(items))
    return [found[place] for place in range(len(items))]


def _in_turn(make: Callable[[Any, Pieces], Made], items: Sequence[Any], pieces: Pieces, stage: str) -> list[Made]:
    threads = torch.get_num_threads()
    _prepare()
    try:
        found = []
        for number, item in enumerate(items):
            pieces.watch(stage, number, len(items))
            found.append(make(item, pieces))
        pieces.watch(stage, len(items), len(items))
        return found
    finally:
        torch.set_num_threads(threads)


def _made(make: Callable[[Any, Pieces], Made], item: Any, folder: Path) -> Made:
    return make(item, Pieces(folder))


def _prepare() -> None:
    use_one_thread()
    keep_freed_memory()
