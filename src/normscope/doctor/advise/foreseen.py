"""What is foreseen of a model's learning rates, by constants or by short trainings, put into the words of advice."""

import math
from dataclasses import dataclass, replace
from typing import Self

from ..result import Advice, RatePlace, RateRange, ShortTraining, WarmupAdvice
from .facts import Facts
from .first_update import FirstUpdate
from .probe import Probe
from .rule import Rule
from .trial import Trial
from .warmup import Warmups, outcome_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Rates in decades (log10)."""

    best: float
    low: float
    """The interval of the best rate reaches from here ..."""
    high: float
    """... to here."""
    shift: float
    """From where the constants say that trainings are stuck to where they are."""
    distance: float | None
    """How far the model is from those that the constants were fitted to; None where that does not matter."""
    known: bool
    probe: Probe | None = None

    @classmethod
    def instantly(cls, facts: Facts, rule: Rule) -> Self:
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

    def looked(self, probe: Probe, rule: Rule) -> Self:
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

    def good(self, facts: Facts, rule: Rule) -> RateRange:
        """Rates about as good as the best; none that is likelier stuck than not."""
        stuck = rule.stuck(facts) + self.shift
        return _range(self.best - rule.below, max(self.best, min(self.best + rule.above, stuck)))


_UNKNOWN = (
    "the model is further from those that the advice was tested on than any of them is from other families: only short "
    "trainings on your batches can tell"
)


def advised(seen: FirstUpdate, facts: Facts, rule: Rule, foreseen: Foreseen, wanted_rate: float | None) -> Advice:
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


def with_trial(advice: Advice, trial: Trial, chance: float) -> Advice:
    """With the chance that the wanted rate gets stuck as a short training at it shows it."""
    return replace(
        advice,
        stuck_chance=chance,
        wanted_training=_short(trial),
        updates_used=advice.updates_used + len(trial.losses),
    )


def warmup_advice(found: Warmups) -> WarmupAdvice:
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


def _short(trial: Trial) -> ShortTraining:
    finite = all(map(math.isfinite, trial.losses))
    return ShortTraining(
        rate=trial.rate,
        updates=len(trial.losses),
        warmup_updates=trial.warmup_updates,
        losses=tuple(loss if math.isfinite(loss) else None for loss in trial.losses),
        spread=trial.spreads[-1] if math.isfinite(trial.spreads[-1]) else None,
        outcome="not finite" if not finite else outcome_of(trial),
    )


def _notes(facts: Facts, rule: Rule, shut: int, probe: Probe | None) -> list[str]:
    """Reasons to doubt."""
    notes = []
    if facts.optimizer not in rule.optimizers:
        notes.append(f"fitted to {', '.join(rule.optimizers)}; {facts.optimizer} is taken for one like Adam")
    if shut:
        notes.append(f"{shut} weights have no gradient before the first update, as behind gates that start at 0")
    if probe is not None and probe.updates_used < rule.probe.updates:
        notes.append(f"{probe.updates_used} updates were made; how they are read was fitted to {rule.probe.updates}")
    return notes
