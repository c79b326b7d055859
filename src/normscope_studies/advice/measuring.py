"""What is measured of each case, in several processes: facts, trainings, a probe, a range test, warm-ups."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from normscope.choosing.rates import WITHIN, RateFacts, RateLaw
from normscope.doctor.advise.advice import facts_of
from normscope.doctor.advise.optimizers import of_config
from normscope.doctor.advise.probe import length, probe, reading_of, shortest_warmup
from normscope.doctor.advise.probe import length_with_tail as warmup_length
from normscope.doctor.advise.rule import ProbeRule
from normscope.doctor.advise.short_run import ShortRun, TrainingBatches
from normscope.doctor.find.search import streams_in
from normscope.doctor.identify.stacks import as_stacks
from normscope.train.device import available_cores, keep_freed_memory

from ..engine.pieces import Pieces
from .cases import AdviceCase, AdviceConfig, rate_of
from .fit import CaseProbe, Judgement, NamedRate, no_rule
from .ladder import TrainedCase, at_rate, nats, piece_of, trainings
from .tasks import CaseTask, task_of
from .training import model_of, optimizer_of, range_test

PROBE_SEED = 1000
"""Added to a case's seed: a probe sees other batches than the training that it foretells."""


def facts_about(case: AdviceCase, *, text_file: str, corpus: str) -> dict[str, Any]:
    """What the doctor asks known rates with, as plain values."""
    task = task_of(case, text_file, corpus)
    model, batch = model_of(case, task), task.batch(0)
    _, streams = streams_in(model, batch.run)
    return asdict(facts_of(as_stacks(streams), case.optimizer))


def trials_of(case: AdviceCase, *, expected: float, updates: int, text_file: str, corpus: str) -> Any:
    """The short trainings of a whole probe as the doctor makes it, of batches that the trainings have not in this
    order."""
    model = model_of(case, task_of(case, text_file, corpus))
    found = probe(
        model,
        batches_of(task_of(case, text_file, corpus, case.seed + PROBE_SEED)),
        of_config(model, optimizer_of(case, 1.0)),
        updates=updates,
        expected=expected,
        rule=no_rule(updates, 0),
    )
    return [asdict(trial) for trial in found.trials]


def as_trial(table: dict[str, Any]) -> ShortRun:
    return ShortRun(**table | {name: tuple(table[name]) for name in ("losses", "spreads")})


def batches_of(task: CaseTask) -> TrainingBatches:
    """As the doctor wants them."""

    def batch(number: int) -> Any:
        found = task.batch(number)
        return found.run, found.loss

    return batch


LIGHTNING, LR_FINDER = "Lightning's finder", "pytorch-lr-finder"
PEERS = {LIGHTNING: "lightning", LR_FINDER: "lr_finder"}
"""What is shown, and the key of the range test's piece."""


def known_of(config: AdviceConfig, case: AdviceCase, pieces: Pieces) -> TrainedCase:
    seen = piece_of(case, "facts", config, pieces, facts_about)
    return TrainedCase(case=case, facts=RateFacts(**seen), outcomes=trainings(case, config, pieces))


def probed_of(config: AdviceConfig, asked: tuple[TrainedCase, RateLaw], pieces: Pieces) -> CaseProbe:
    known, law = asked
    case, updates, expected = known.case, config.probe_updates, round(math.log10(law(known.facts)), 6)
    found = piece_of(case, "probe", config, pieces, trials_of, expected=expected, updates=updates)
    reading = reading_of([as_trial(table) for table in found], length(updates), optimizer=case.optimizer)
    return CaseProbe(known=known, expected=expected, reading=reading)


def judged_of(config: AdviceConfig, asked: tuple[CaseProbe, ProbeRule], pieces: Pieces) -> Judgement:
    probed, rule = asked
    known, case = probed.known, probed.known.case
    settings = {"updates": config.probe_updates, "seed": case.seed + PROBE_SEED}
    swept = piece_of(case, "range-test", config, pieces, range_test, **settings)
    expected, best, within = probed.expected, probed.best(rule), math.log10(WITHIN)
    return Judgement(
        known=known,
        usual=NamedRate(known=known, rate=expected, interval=(expected - within, expected + within)),
        probe=NamedRate(known=known, rate=best, interval=(best + rule.low, best + rule.high)),
        finders={name: NamedRate(known=known, rate=_decades(swept[key])) for name, key in PEERS.items()},
    )


def _decades(rate: float | None) -> float | None:
    return None if not rate else float(torch.tensor(rate, dtype=torch.float64).log10())


MOST_A_FAMILY = 2
"""Cases in which warm-ups are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """What was found for one case, at the lowest rate of its ladder from which on all are stuck."""

    case: AdviceCase
    rate: float
    shortest: int | None
    """In updates, by whole trainings; None where the longest that was tried did not do."""
    tested: int | None
    """The shortest that carried the rate in the doctor's short trainings."""
    named: int | None
    """What it therefore says."""
    updates_used: int
    """By these."""


def warmup_cases(known: list[TrainedCase]) -> list[TrainedCase]:
    """Those with Adam or AdamW that learned, at some rates, and were stuck at the highest ones; a few of each
    family."""
    found = [one for one in known if one.case.optimizer in ("adam", "adamw") and one.learned and one.stuck is not None]
    by_family: dict[str, list[TrainedCase]] = {}
    for one in found:
        by_family.setdefault(one.case.family, []).append(one)
    return [one for some in by_family.values() for one in some[:MOST_A_FAMILY]]


def warmup_of(config: AdviceConfig, known: TrainedCase, pieces: Pieces) -> Warmup:
    """By halving: a warm-up that carries the rate is taken to mean that longer ones do."""
    step = min(step for step, stuck in known.labels().items() if stuck and _all_above(known, step))
    rate, ladder = rate_of(step), config.warmup_ladder

    def trains(warmup: int) -> bool:
        return not known.stuck_at(nats(at_rate(known.case, rate, config, pieces, warmup_updates=warmup)))

    updates = sum(map(warmup_length, ladder))
    tested = piece_of(known.case, "warm-up", config, pieces, tested_warmup, rate=rate, updates=updates)
    return Warmup(case=known.case, rate=rate, shortest=shortest(ladder, trains), **tested)


def _all_above(known: TrainedCase, step: int) -> bool:
    return all(stuck for other, stuck in known.labels().items() if other >= step)


def shortest(ladder: tuple[int, ...], trains: Callable[[int], bool]) -> int | None:
    """By halving: a warm-up that trains is taken to mean that longer ones do."""
    low, high = 0, len(ladder)
    while low < high:
        middle = (low + high) // 2
        if trains(ladder[middle]):
            high = middle
        else:
            low = middle + 1
    return ladder[low] if low < len(ladder) else None


def tested_warmup(case: AdviceCase, rate: float, *, updates: int, text_file: str, corpus: str) -> dict[str, int | None]:
    """What the doctor says of warm-ups for a rate, as plain values."""
    model = model_of(case, task_of(case, text_file, corpus))
    found = shortest_warmup(
        model,
        batches_of(task_of(case, text_file, corpus, case.seed + PROBE_SEED)),
        of_config(model, optimizer_of(case, 1.0)),
        rate=rate,
        updates=updates,
    )
    return {"tested": found.shortest, "named": found.named, "updates_used": found.updates_used}


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
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_prepare) as pool:
        waiting = {pool.submit(_made, make, item, pieces.folder): place for place, item in enumerate(items)}
        found: dict[int, _Made] = {}
        pieces.watch(stage, 0, len(items))
        for done in as_completed(waiting):
            found[waiting[done]] = done.result()
            pieces.watch(stage, len(found), len(items))
    return [found[place] for place in range(len(items))]


def _in_turn(make: Callable[[Any, Pieces], _Made], items: Sequence[Any], pieces: Pieces, stage: str) -> list[_Made]:
    threads = torch.get_num_threads()
    _prepare()
    try:
        return [make(item, pieces) for item in pieces.each(stage, items)]
    finally:
        torch.set_num_threads(threads)


def _made(make: Callable[[Any, Pieces], _Made], item: Any, folder: Path) -> _Made:
    return make(item, Pieces(folder))


def _prepare() -> None:
    # One thread gives the same bits wherever a case is measured.
    torch.set_num_threads(1)
    keep_freed_memory()
