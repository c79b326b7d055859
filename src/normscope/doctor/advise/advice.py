"""Advice on the learning rate: what models like this one are trained with, or what short trainings of it say."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...choosing.rates import ADAM, HELD, RateFacts, TypicalRate, law, typical_rate
from ...optim import OPTIMIZERS
from ...report.words import learning_rate
from ..record import Stack
from ..result import Advice, RatePlace, RateRange, ShortTraining, WarmupAdvice
from .optimizers import maker_of
from .probe import Probe, WarmupSearch, outcome_of, probe, shortest_warmup, trial_at
from .rule import ProbeRule, shipped_rule
from .short_run import Probing, ShortRun, batches_of

_UNSEEN = "neither recipes nor trainings of ours with this optimiser are known near this width"
_TRAINED = "the weights are trained, and known rates are of trainings from their beginning"
_FROM_TRAINED = "the weights are trained, and how short trainings are read was fitted to initial ones"
_NOTHING_LEARNED = "the loss fell at none of the rates that were tried"


def facts_of(stacks: Sequence[Stack], optimizer: str) -> RateFacts:
    """What known rates are asked with; an optimiser that is not listed is taken for Adam."""
    formulas = [sublayer.formula for stack in stacks for sublayer in stack.sublayers]
    return RateFacts(
        optimizer=optimizer if optimizer in OPTIMIZERS else ADAM,
        width=max((stack.width for stack in stacks), default=1),
        sublayers=len(formulas),
        normed_sums=sum(formula.sum_is_normed for formula in formulas) / max(1, len(formulas)),
    )


def advise(
    model: nn.Module,
    loss: Callable[..., Tensor] | None,
    *,
    optimizer: str | torch.optim.Optimizer,
    wanted_rate: float | None,
    stacks: Sequence[Stack],
    trained: bool = False,
    probing: Probing | None = None,
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Advice:
    """By known rates, which costs nothing; with `probing` by short trainings about what is known.

    trained: whether the weights have been. watch: told of the stage, the updates that were made, and how many there
    are. Raises ValueError for an unknown optimiser, one whose class cannot be built from its own settings, a wanted
    rate that is not positive, and too few updates to probe with.
    """
    if wanted_rate is not None and not 0 < wanted_rate < math.inf:
        raise ValueError(f"the wanted rate must be positive and finite, got {wanted_rate}")
    maker, rule = maker_of(model, optimizer), shipped_rule()
    facts = facts_of(stacks, maker.name)
    notes: tuple[str, ...] = () if maker.name in OPTIMIZERS else (f"{maker.name} is taken for one like Adam",)
    if probing is None:
        known = None if trained else typical_rate(facts)
        return _known(maker.name, known, wanted_rate, notes, unknown=_TRAINED if trained else _UNSEEN)
    batches = batches_of(probing.batches, loss)
    updates, expected = min(probing.updates, rule.updates), math.log10(law()(facts))
    looked = probe(model, batches, maker, expected=expected, rule=rule, updates=updates, watch=watch)
    notes += (_FROM_TRAINED,) if trained else ()
    advice = _probed(maker.name, looked, rule, wanted_rate, notes)
    if wanted_rate is None:
        return advice
    trial = trial_at(wanted_rate, model, batches, maker, updates=rule.trial_updates, watch=watch)
    advice = replace(advice, wanted_training=_short(trial), updates_used=advice.updates_used + len(trial.losses))
    may_be_too_high = advice.wanted_place == "undecided" and wanted_rate > (advice.best_rate or 0.0)
    if not advice.is_too_high and not may_be_too_high:
        return advice
    found = shortest_warmup(model, batches, maker, rate=wanted_rate, updates=probing.updates, watch=watch)
    return replace(advice, warmup=warmup_advice(found), updates_used=advice.updates_used + found.updates_used)


def _known(
    optimizer: str, known: TypicalRate | None, wanted_rate: float | None, notes: tuple[str, ...], *, unknown: str
) -> Advice:
    span = None if known is None else RateRange(low=known.low, high=known.high)
    return Advice(
        optimizer=optimizer,
        source="known rates",
        confidence=HELD[0] / HELD[1],
        basis="" if known is None else known.stands_on,
        recipes=0 if known is None else known.recipes,
        ladders=0 if known is None else known.trainings,
        unknown=unknown if known is None else "",
        best_rate=None if known is None else known.rate,
        best_interval=span,
        good_range=span,
        wanted_rate=wanted_rate,
        wanted_place=None if wanted_rate is None else "unknown" if span is None else _place(wanted_rate, span, span),
        usual_warmup_shares=() if known is None else tuple(known.warmups),
        notes=notes,
    )


def _probed(
    optimizer: str, looked: Probe, rule: ProbeRule, wanted_rate: float | None, notes: tuple[str, ...]
) -> Advice:
    learned = looked.reading.gain > 0
    interval = _range(looked.best + rule.low, looked.best + rule.high) if learned else None
    good = _range(looked.best - rule.below, looked.best + rule.above) if learned else None
    place: RatePlace | None = None
    if wanted_rate is not None:
        place = "unknown" if good is None or interval is None else _place(wanted_rate, good, interval)
    return Advice(
        optimizer=optimizer,
        source="probe",
        horizon_updates=rule.horizon_updates,
        regret_nats=rule.regret_nats,
        confidence=rule.confidence,
        unknown="" if learned else _NOTHING_LEARNED,
        best_rate=10**looked.best if learned else None,
        best_interval=interval,
        good_range=good,
        wanted_rate=wanted_rate,
        wanted_place=place,
        probed=tuple(map(_short, looked.trials)),
        updates_used=looked.updates_used,
        notes=(*notes, *_doubts(looked, rule)),
    )


def _doubts(looked: Probe, rule: ProbeRule) -> Iterator[str]:
    """Too few updates, and a lowest loss at an end of what was tried, beyond which the best rate may lie."""
    if looked.updates_used < rule.updates:
        yield f"{looked.updates_used} updates were made; how they are read was fitted to {rule.updates}"
    rates = [trial.rate for trial in looked.trials]
    middle = math.log10(rates[len(rates) // 2])
    for end, way in ((rates[0], "lowest"), (rates[-1], "highest")):
        if math.isclose(looked.reading.lowest, math.log10(end) - middle, abs_tol=1e-9):
            yield f"the loss fell furthest at the {way} rate that was tried, {learning_rate(end, 2)}, and may beyond it"


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
