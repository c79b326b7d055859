"""The doctor's advice: fitted to short trainings, and judged by others that it has not seen."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from ...doctor.advise.calibration import Calibration
from ...train.device import available_cores, keep_freed_memory
from ..protocol.pieces import Pieces
from ..protocol.study import Findings, Study
from . import ABOUT
from .cases import Case
from .claims import claims
from .conditions import conditions
from .config import SCALES, AdviceConfig
from .facts import as_facts, facts_about, use_one_thread
from .figures import figures
from .fit import Known, fitted
from .judge import Judged, judged
from .search import training, trainings
from .tables import data, tables
from .training import corpus_at
from .warmup import Warmup, points, warmups_of

Made = TypeVar("Made")


def run(config: AdviceConfig, pieces: Pieces) -> Findings:
    """One piece a training. Raises UserError for a corpus that is not there."""
    for corpus in dict.fromkeys(case.corpus for case in (*config.calibration, *config.evaluation)):
        corpus_at(corpus)
    cases = [*config.calibration, *config.evaluation]
    known = dict(zip(cases, _side_by_side(partial(_known, config), cases, config, pieces, "cases"), strict=True))
    asked = [known[case] for case in config.warmups]
    found = _side_by_side(partial(_warmups, config), asked, config, pieces, "warm-ups")
    warmups = [one for several in found for one in several]
    calibration = [known[case] for case in config.calibration]
    constants = fitted(calibration, points(warmups, config.warmup_ladder))
    evaluation = [known[case] for case in config.evaluation]
    safe = _side_by_side(partial(_safe, config, constants), evaluation, config, pieces, "safe rates")
    return Findings(
        conditions=conditions(config, calibration, safe),
        claims=claims(safe),
        figures=figures(calibration, safe, constants),
        tables=tables(safe, warmups, constants),
        data=data(constants, calibration, safe, warmups),
    )


def _known(config: AdviceConfig, case: Case, pieces: Pieces) -> Known:
    seen = pieces.get(
        f"{case.name}/first-update",
        {**asdict(case), "max_tokens": config.max_tokens},
        facts_about,
        case,
        config.max_tokens,
    )
    outcomes = trainings(case, pieces, updates=config.updates_of(case), max_tokens=config.max_tokens)
    return Known(case=case, facts=as_facts(seen), outcomes=outcomes)


def _warmups(config: AdviceConfig, known: Known, pieces: Pieces) -> list[Warmup]:
    return warmups_of(known, config, pieces)


def _safe(config: AdviceConfig, constants: Calibration, known: Known, pieces: Pieces) -> Judged:
    """The training at the safe rate, to three digits, as one would type it."""
    rate = float(f"{constants.safe_rate(known.facts):.3g}")
    options: Mapping[str, int] = {"updates": config.updates_of(known.case), "max_tokens": config.max_tokens}
    return judged(known, constants, training(known.case, rate, pieces, **options))


def _side_by_side(
    make: Callable[[Any, Pieces], Made], items: Sequence[Any], config: AdviceConfig, pieces: Pieces, stage: str
) -> list[Made]:
    """`make` of every item, each in one of several processes of one thread; what they measure is kept as it is made."""
    processes = min(config.processes or available_cores(), max(1, len(items)))
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


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
