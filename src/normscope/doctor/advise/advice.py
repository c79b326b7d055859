"""Advice on the learning rate: from the first update and constants, or from short trainings as well."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from ..observe.gradients import Backward
from ..record import Stack
from ..result import Advice
from ..trace.forward import Inputs
from .batches import Probing, batches_of, loss_of_output
from .change import change_along
from .early import shipped_early_rule
from .facts import facts_of
from .first_update import first_update
from .foreseen import Foreseen, advised, warmup_advice, with_trial
from .optimizers import maker_of
from .probe import probe, trial_at
from .rule import shipped_rule
from .warmup import shortest_warmup


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
    instant = Foreseen.instantly(facts, rule)
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
