"""Advice on the learning rate: from the first update and constants, or from short runs as well."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from ..observe.gradients import Backward
from ..record import Stack
from ..result import Advice, RatePlace, RateRange, ShortTraining, WarmupAdvice
from ..trace.forward import Inputs
from .first_update import FirstUpdate, change_along, first_update
from .optimizers import maker_of
from .probe import Probe, WarmupSearch, outcome_of, probe, shortest_warmup, trial_at
from .rule import ModelFacts, RateRule, facts_of, shipped_early_rule, shipped_rule
from .short_run import Probing, ShortRun, batches_of, loss_of_output


@dataclass(frozen=True, slots=True, kw_only=True)
class RateForecast:
    """Rates in decades (log10)."""

    best: float
    low: float
    """The interval of the best rate reaches from here ..."""
    high: float
    """... to here."""
    shift: float
    """Decades to add to the rate from which the constants foresee stuck trainings; 0 without short runs."""
    distance: float | None
    """How far the model is from those that the constants were fitted to; None where that does not matter."""
    known: bool
    probe: Probe | None = None

    @classmethod
    def instantly(cls, facts: ModelFacts, rule: RateRule) -> Self:
        """By constants alone."""
        best, distance = rule.best(facts), rule.tested.distance(facts)
        return cls(
            best=best,
            low=best + rule.low,
            high=best + rule.high,
            shift=0.0,
            distance=distance,
            known=distance <= rule.tested.limit,
        )

    def looked(self, probe: Probe, rule: RateRule) -> Self:
        """The same after short trainings: how far the model is from others does not matter then."""
        return replace(
            self,
            best=probe.best,
            low=probe.best + rule.probe.low,
            high=probe.best + rule.probe.high,
            shift=probe.best - self.best,
            distance=None,
            known=True,
            probe=probe,
        )

    def good(self, facts: ModelFacts, rule: RateRule) -> RateRange:
        """Rates about as good as the best; none that is likelier stuck than not."""
        stuck = rule.stuck(facts) + self.shift
        return _range(self.best - rule.below, max(self.best, min(self.best + rule.above, stuck)))


_UNKNOWN = (
    "the model is further from those that the advice was tested on than any of them is from other families: only short "
    "trainings on your batches can tell"
)


def advised(
    seen: FirstUpdate, facts: ModelFacts, rule: RateRule, foreseen: RateForecast, wanted_rate: float | None
) -> Advice:
    """All of it, without warm-ups."""
    known, probe = foreseen.known, foreseen.probe
    interval, good = _range(foreseen.low, foreseen.high), foreseen.good(facts, rule)

    def chance(rate: float) -> float:
        return rule.stuck_chance(facts, rate / 10**foreseen.shift)

    return Advice(
        optimizer=facts.optimizer,
        source="first update" if probe is None else "probe",
        horizon_updates=rule.horizon_updates,
        regret_nats=rule.regret_nats,
        confidence=rule.confidence,
        unknown="" if known else _UNKNOWN,
        distance=foreseen.distance,
        distance_limit=None if foreseen.distance is None else rule.tested.limit,
        best_rate=10**foreseen.best if known else None,
        best_interval=interval if known else None,
        good_range=good if known else None,
        stuck_rate=float(10 ** (rule.stuck(facts) + foreseen.shift)) if known else None,
        wanted_rate=wanted_rate,
        wanted_place=None if wanted_rate is None else _place(wanted_rate, good, interval) if known else "unknown",
        stuck_chance=None if wanted_rate is None or not known else chance(wanted_rate),
        rates=seen.rates,
        loss_along_step=tuple(value if math.isfinite(value) else None for value in seen.losses),
        stuck_chances=tuple(map(chance, seen.rates)) if known else (),
        lowest_loss_rate=seen.critical_rate,
        probed=() if probe is None else tuple(map(_short, probe.trials)),
        updates_used=0 if probe is None else probe.updates_used,
        notes=tuple(_notes(facts, rule, seen.shut_weights, probe)),
    )


def with_trial(advice: Advice, trial: ShortRun, chance: float) -> Advice:
    """With the chance that the wanted rate gets stuck as a short training at it shows it."""
    return replace(
        advice,
        stuck_chance=chance,
        wanted_training=_short(trial),
        updates_used=advice.updates_used + len(trial.losses),
    )


def warmup_advice(found: WarmupSearch) -> WarmupAdvice:
    """What was tried, and the shortest that carries the rate."""
    return WarmupAdvice(
        tried=tuple(map(_short, found.trials)),
        shortest_updates=found.shortest,
        named_updates=found.named,
    )


def _range(low: float, high: float) -> RateRange:
    return RateRange(low=10**low, high=10**high)


def _place(rate: float, good: RateRange, interval: RateRange) -> RatePlace:
    """In range where it is about as good as what is named; above or below where it is no best rate either."""
    if good.low <= rate <= good.high:
        return "in range"
    if rate > max(good.high, interval.high):
        return "above"
    return "below" if rate < min(good.low, interval.low) else "undecided"


def _short(trial: ShortRun) -> ShortTraining:
    finite = all(map(math.isfinite, trial.losses))
    return ShortTraining(
        rate=trial.rate,
        updates=len(trial.losses),
        warmup_updates=trial.warmup_updates,
        losses=tuple(loss if math.isfinite(loss) else None for loss in trial.losses),
        spread=trial.spreads[-1] if math.isfinite(trial.spreads[-1]) else None,
        outcome="not finite" if not finite else outcome_of(trial),
    )


def _notes(facts: ModelFacts, rule: RateRule, shut: int, probe: Probe | None) -> list[str]:
    """Reasons to doubt."""
    notes = []
    if facts.optimizer not in rule.optimizers:
        notes.append(f"fitted to {', '.join(rule.optimizers)}; {facts.optimizer} is taken for one like Adam")
    if shut:
        notes.append(f"{shut} weights have no gradient before the first update, as behind gates that start at 0")
    if probe is not None and probe.updates_used < rule.probe.updates:
        notes.append(f"{probe.updates_used} updates were made; how they are read was fitted to {rule.probe.updates}")
    return notes


def advise(
    model: nn.Module,
    batch: Inputs,
    loss: Callable[..., Tensor] | None,
    *,
    optimizer: str | torch.optim.Optimizer,
    wanted_rate: float | None,
    stacks: Sequence[Stack],
    probing: Probing | None = None,
    start: Backward | None = None,
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Advice:
    """By what the first update does at every rate, and constants from trainings; with `probing` by short ones as well.

    start: the backward pass on this batch, where there was one. stacks: as they were measured; of their
    sub-layers the change by the first update is told, in two forward passes and a part of one.
    watch: told of the stage, the rates that were looked at or the updates that were made, and how many there are.
    Raises ValueError for an unknown optimiser, one whose class cannot be built from its own settings, a wanted rate
    that is not positive, and too few updates to probe with.
    """
    if wanted_rate is not None and not 0 < wanted_rate < math.inf:
        raise ValueError(f"the wanted rate must be positive and finite, got {wanted_rate}")
    maker, rule = maker_of(model, optimizer), shipped_rule()
    of_output = loss_of_output(loss, batch)
    seen, line = first_update(model, batch, of_output, maker.over_one, partial(watch, "rates"), start)
    facts = facts_of(seen, optimizer=maker.name, stacks=stacks)
    instant = RateForecast.instantly(facts, rule)
    change = change_along(model, batch, line, 10**instant.best if wanted_rate is None else wanted_rate, stacks)
    del line  # its direction is as large as the model
    if probing is None:
        return replace(advised(seen, facts, rule, instant, wanted_rate), change=change)
    batches = batches_of(probing.batches, loss)
    updates = min(probing.updates, rule.probe.updates)
    looked = probe(model, batches, maker, expected=rule.best(facts), rule=rule.probe, updates=updates, watch=watch)
    advice = replace(advised(seen, facts, rule, instant.looked(looked, rule), wanted_rate), change=change)
    if wanted_rate is None:
        return advice
    early = shipped_early_rule()
    trial = trial_at(wanted_rate, model, batches, maker, updates=early.updates, watch=watch)
    advice = with_trial(advice, trial, early.stuck_chance(facts, trial))
    if advice.wanted_place in ("in range", "below"):
        return advice
    found = shortest_warmup(model, batches, maker, rate=wanted_rate, updates=probing.updates, watch=watch)
    return replace(advice, warmup=warmup_advice(found), updates_used=advice.updates_used + found.updates_used)
