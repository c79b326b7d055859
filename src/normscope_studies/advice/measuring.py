"""What is measured of one case: its trainings, its first update, a probe, a range test and warm-ups."""

from dataclasses import asdict
from typing import Any

import torch

from normscope.doctor.advise.probe import length
from normscope.doctor.advise.reading import reading_of
from normscope.doctor.advise.rule import Rule

from ..engine.pieces import Pieces
from .cases.case import Case
from .config import AdviceConfig
from .facts import PROBE_SEED, as_facts, as_trial, facts_about, trials_of
from .finder import range_test
from .judge import Judged, Named
from .probing import Probed
from .search import trainings
from .truth import Known

LIGHTNING, LR_FINDER = "Lightning's finder", "pytorch-lr-finder"
PEERS = {LIGHTNING: "lightning", LR_FINDER: "lr_finder"}
"""What is shown, and the key of the range test's piece."""


def known_of(config: AdviceConfig, case: Case, pieces: Pieces) -> Known:
    places = config.places
    seen = pieces.get(f"{case.name}/first-update", {**asdict(case), **places}, facts_about, case, **places)
    return Known(case=case, facts=as_facts(seen), outcomes=trainings(case, config, pieces))


def probed_of(config: AdviceConfig, asked: tuple[Known, Rule], pieces: Pieces) -> Probed:
    known, rule = asked
    expected = round(rule.best(known.facts), 6)
    settings: dict[str, Any] = {"expected": expected, "updates": config.probe_updates, **config.places}
    found = pieces.get(
        f"{known.case.name}/probe", {**asdict(known.case), **settings}, trials_of, known.case, **settings
    )
    trials = [as_trial(table) for table in found]
    reading = reading_of(trials, length(config.probe_updates), optimizer=known.case.optimizer)
    return Probed(known=known, expected=expected, reading=reading)


def judged_of(config: AdviceConfig, asked: tuple[Probed, Rule], pieces: Pieces) -> Judged:
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
