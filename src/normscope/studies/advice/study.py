"""The doctor's advice: fitted to short trainings, and judged on families of models that it has not seen."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from ...doctor.advise.probe import length
from ...doctor.advise.reading import reading_of
from ...doctor.advise.rule import Rule
from ...train.device import available_cores, keep_freed_memory
from ..protocol.pieces import Pieces
from ..protocol.study import Findings, Study
from . import ABOUT
from .cases.case import Case
from .claims import claims
from .conditions import conditions
from .config import SCALES, AdviceConfig
from .facts import PROBE_SEED, as_facts, as_trial, facts_about, trials_of, use_one_thread
from .figures import figures
from .finder import range_test
from .fit import families, fitted, left_out
from .judge import Judged, Named
from .partial import partly
from .probing import Probed, fitted_probe
from .search import trainings
from .tables import data, tables
from .trained.tasks import task_of
from .truth import Known
from .warmup import warmup_cases, warmup_of

Made = TypeVar("Made")
LIGHTNING, LR_FINDER = "Lightning's finder", "pytorch-lr-finder"
PEERS = {LIGHTNING: "lightning", LR_FINDER: "lr_finder"}
"""What is shown, and the key of the range test's piece."""


def run(config: AdviceConfig, pieces: Pieces) -> Findings:
    """One piece a training. Raises UserError for a text or a corpus that is not there."""
    for case in {(case.architecture, case.text): case for case in config.cases}.values():
        task_of(case, config.text_file, config.corpus)
    make = partial(_side_by_side, config=config, pieces=pieces)
    known = make(partial(_known, config), config.cases, stage="cases")
    usable = [one for one in known if one.learned]
    rules = _rules(usable, config)
    found = make(partial(_probed, config), [(one, rules[one.case.family]) for one in usable], stage="probes")
    rules = {
        family: replace(
            rules[family], probe=fitted_probe([one for one in found if one.family != family], config.probe_updates)
        )
        for family in families(usable)
    }
    judged = make(partial(_judged, config), [(one, rules[one.family]) for one in found], stage="range tests")
    warmups = make(partial(_warmup, config), warmup_cases(usable), stage="warm-ups")
    rule = replace(fitted(usable, horizon_updates=config.updates), probe=fitted_probe(found, config.probe_updates))
    early = partly(usable, config.updates)
    return Findings(
        conditions=conditions(config, known),
        claims=claims(judged, warmups),
        figures=figures(judged),
        tables=tables(known, judged, warmups, early),
        data=data(rule, known, judged, warmups, early),
    )


def _rules(usable: Sequence[Known], config: AdviceConfig) -> dict[str, Rule]:
    """By family, each fitted to all others."""
    return {left[0].case.family: fitted(rest, horizon_updates=config.updates) for rest, left in left_out(usable)}


def _known(config: AdviceConfig, case: Case, pieces: Pieces) -> Known:
    places = config.places
    seen = pieces.get(f"{case.name}/first-update", {**asdict(case), **places}, facts_about, case, **places)
    return Known(case=case, facts=as_facts(seen), outcomes=trainings(case, config, pieces))


def _probed(config: AdviceConfig, asked: tuple[Known, Rule], pieces: Pieces) -> Probed:
    known, rule = asked
    expected = round(rule.best(known.facts), 6)
    settings: dict[str, Any] = {"expected": expected, "updates": config.probe_updates, **config.places}
    found = pieces.get(
        f"{known.case.name}/probe", {**asdict(known.case), **settings}, trials_of, known.case, **settings
    )
    trials = [as_trial(table) for table in found]
    reading = reading_of(trials, length(config.probe_updates), optimizer=known.case.optimizer)
    return Probed(known=known, expected=expected, reading=reading)


def _judged(config: AdviceConfig, asked: tuple[Probed, Rule], pieces: Pieces) -> Judged:
    probed, rule = asked
    known, case = probed.known, probed.known.case
    settings: dict[str, Any] = {"updates": config.probe_updates, **config.places}
    swept = pieces.get(
        f"{case.name}/range-test",
        {**asdict(case), **settings, "seed": case.seed + PROBE_SEED},
        range_test,
        case,
        **settings,
        seed=case.seed + PROBE_SEED,
    )
    expected, best = probed.expected, probed.best(rule.probe)
    return Judged(
        known=known,
        rule=rule,
        instant=Named(known=known, rate=expected, interval=(expected + rule.low, expected + rule.high)),
        probe=Named(known=known, rate=best, interval=(best + rule.probe.low, best + rule.probe.high)),
        finders={name: Named(known=known, rate=_decades(swept[key])) for name, key in PEERS.items()},
    )


def _decades(rate: float | None) -> float | None:
    return None if not rate else float(torch.tensor(rate, dtype=torch.float64).log10())


def _warmup(config: AdviceConfig, known: Known, pieces: Pieces) -> Any:
    return warmup_of(known, config, pieces)


def _side_by_side(
    make: Callable[[Any, Pieces], Made], items: Sequence[Any], *, config: AdviceConfig, pieces: Pieces, stage: str
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
