"""Advice on the learning rate: what models like this one are trained with."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from ..choosing.law import ADAM, RateFacts
from ..choosing.rates import (
    CARRIED_HELD,
    HELD_LADDERS,
    STEPS,
    WITHIN,
    BestOfSmaller,
    TypicalRate,
    typical_rate,
)
from ..optim import OPTIMIZERS
from ..report.words import learning_rate
from .record import Stack
from .result import Advice, RateOfBatch, RateRange

_UNSEEN = "neither recipes nor training runs of ours with this optimiser are known near this width"
_TRAINED = "the weights are trained, and known rates are of trainings from their beginning"


def facts_of(
    stacks: Sequence[Stack], optimizer: str, batch_tokens: float | None = None
) -> RateFacts:
    """Returns the facts by which known rates are looked up; an optimiser that is not listed counts
    as Adam.
    """
    formulas = [sublayer.formula for stack in stacks for sublayer in stack.sublayers]
    return RateFacts(
        optimizer=optimizer if optimizer in OPTIMIZERS else ADAM,
        width=max((stack.width for stack in stacks), default=1),
        sublayers=len(formulas),
        normed_sums=sum(formula.sum_is_normed for formula in formulas) / max(1, len(formulas)),
        batch_tokens=batch_tokens,
    )


def name_of(optimizer: str | torch.optim.Optimizer) -> str:
    """Returns a name of `normscope.optim.OPTIMIZERS`, or that of an instance's class. Raises
    ValueError for an unknown name.
    """
    if isinstance(optimizer, torch.optim.Optimizer):
        return type(optimizer).__name__.lower()
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"unknown optimizer {optimizer!r}; choose {', '.join(OPTIMIZERS)}, or give an instance"
        )
    return optimizer


def wanted_rate_of(optimizer: str | torch.optim.Optimizer) -> float | None:
    """Returns the rate that an instance is set to, the largest of its groups; None for a name."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return None
    rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
    return max(rates, default=0.0) or None


def advise(
    optimizer: str | torch.optim.Optimizer,
    *,
    stacks: Sequence[Stack],
    wanted_rate: float | None,
    wanted_warmup_updates: int | None = None,
    trained: bool = False,
    smaller: BestOfSmaller | None = None,
    batch_tokens: float | None = None,
) -> Advice:
    """Advises on the learning rate: by the best rate of a smaller version where one is given, else
    by known rates. trained: whether the weights have been trained. batch_tokens: the tokens of one
    update, None where not known.

    Raises ValueError for an unknown optimiser, and a rate or a batch that is not positive.
    """
    if batch_tokens is not None and not 1 <= batch_tokens < math.inf:
        raise ValueError(f"the batch must have 1 token or more, got {batch_tokens:g}")
    if wanted_rate is not None and not 0 < wanted_rate < math.inf:
        raise ValueError(f"the wanted rate must be positive and finite, got {wanted_rate}")
    name = name_of(optimizer)
    asked = Advice(
        optimizer=name,
        confidence=HELD_LADDERS[0] / HELD_LADDERS[1],
        unknown=_TRAINED if trained else _UNSEEN,
        wanted_rate=wanted_rate,
        wanted_place=None if wanted_rate is None else "unknown",
        wanted_warmup_updates=wanted_warmup_updates,
        batch_tokens=batch_tokens,
        notes=STEPS.get(
            name, () if name in OPTIMIZERS else (f"{name} is taken for one like Adam",)
        ),
    )
    facts = facts_of(stacks, name, batch_tokens)
    known = None if trained else typical_rate(facts)
    if known is not None:
        asked = replace(
            asked,
            unknown="",
            basis=known.stands_on,
            recipes=known.recipes,
            ladders=known.trainings,
            best_rate=known.rate,
            best_interval=RateRange(low=known.low, high=known.high),
            rates_by_batch=_by_batch(known),
            recipe_rate=known.recipe_rate,
            median_rate=known.median_rate,
            usual_warmup_shares=tuple(known.warmups),
        )
    if smaller is not None and not trained:
        asked = _carried(asked, smaller, facts)
    if wanted_rate is None or (span := asked.best_interval) is None:
        return asked
    place: Literal["above", "below", "in range"]
    place = (
        "above" if wanted_rate > span.high else "below" if wanted_rate < span.low else "in range"
    )
    return replace(asked, wanted_place=place)


def _by_batch(known: TypicalRate) -> tuple[RateOfBatch, ...]:
    """Returns the rates of three batches where none was told."""
    if known.batch_told:
        return ()
    return tuple(
        RateOfBatch(batch_tokens=one.batch_tokens, rate=one.rate) for one in known.by_batch
    )


def _carried(advice: Advice, smaller: BestOfSmaller, facts: RateFacts) -> Advice:
    """Puts the smaller model's best rate in place of the known one, which is still mentioned."""
    rate, (held, of) = smaller.carried_to(facts), CARRIED_HELD
    beside = (
        ""
        if advice.best_rate is None
        else f" Known rates alone say {learning_rate(advice.best_rate, 2)}."
    )
    small = smaller.facts
    was = (
        f"{learning_rate(smaller.rate)}, the best of width {small.width} with {small.sublayers} "
        "sub-layers"
    )
    return replace(
        advice,
        unknown="",
        confidence=held / of,
        carried=f"from {was}",
        basis=f"From {was}, moved as the law over known rates moves to width {facts.width} with "
        f"{facts.sublayers} sub-layers; whether it loses less so than as it is, is undecided. "
        f"Such a range held the best rate of {held} of {of} models that were four times as "
        f"large.{beside}",
        best_rate=rate,
        best_interval=RateRange(low=rate / WITHIN, high=rate * WITHIN),
        rates_by_batch=(),
    )
