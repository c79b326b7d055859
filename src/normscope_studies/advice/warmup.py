"""Warm-ups: the shortest that carried a rate in whole trainings, beside what short ones say."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from normscope.doctor.advise.optimizers import of_config
from normscope.doctor.advise.warmup import length, shortest_warmup

from ..engine.pieces import Pieces
from .cases.case import Case, rate_of
from .config import AdviceConfig
from .facts import PROBE_SEED, batches_of
from .search import at_rate, nats
from .trained.tasks import task_of
from .trained.training import model_of, optimizer_of
from .truth import Known

MOST_A_FAMILY = 2
"""Cases in which warm-ups are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """What was found for one case, at the lowest rate of its ladder from which on all are stuck."""

    case: Case
    rate: float
    shortest: int | None
    """In updates, by whole trainings; None where the longest that was tried did not do."""
    tested: int | None
    """The shortest that carried the rate in the doctor's short trainings."""
    named: int | None
    """What it therefore says."""
    updates_used: int
    """By these."""


def warmup_cases(known: list[Known]) -> list[Known]:
    """Those with Adam or AdamW that learned, at some rates, and were stuck at the highest ones; a few of each
    family."""
    found = [one for one in known if one.case.optimizer in ("adam", "adamw") and one.learned and one.stuck is not None]
    by_family: dict[str, list[Known]] = {}
    for one in found:
        by_family.setdefault(one.case.family, []).append(one)
    return [one for some in by_family.values() for one in some[:MOST_A_FAMILY]]


def warmup_of(config: AdviceConfig, known: Known, pieces: Pieces) -> Warmup:
    """By halving: a warm-up that carries the rate is taken to mean that longer ones do."""
    step = min(step for step, stuck in known.labels().items() if stuck and _all_above(known, step))
    rate, ladder = rate_of(step), config.warmup_ladder

    def trains(warmup: int) -> bool:
        return not known.stuck_at(nats(at_rate(known.case, rate, config, pieces, warmup_updates=warmup)))

    settings: dict[str, Any] = {"updates": sum(map(length, ladder)), **config.places}
    tested = pieces.get(
        f"{known.case.name}/warm-up",
        {**asdict(known.case), **settings, "rate": rate},
        tested_warmup,
        known.case,
        rate,
        **settings,
    )
    return Warmup(case=known.case, rate=rate, shortest=shortest(ladder, trains), **tested)


def _all_above(known: Known, step: int) -> bool:
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


def tested_warmup(case: Case, rate: float, *, updates: int, text_file: str, corpus: str) -> dict[str, int | None]:
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
