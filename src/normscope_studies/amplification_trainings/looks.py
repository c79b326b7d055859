"""What is looked at of a case: how far its first update moves the logits, and short trainings at every rate."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normscope.doctor.advise.first_update import first_update
from normscope.doctor.advise.optimizers import of_config
from normscope.doctor.advise.trial import train_shortly
from normscope.measure.unchanged import restored
from normscope.tasks.protocol import TrainingBatch

from ..advice.cases.case import Case, rate_of
from ..advice.facts import PROBE_SEED, batches_of
from ..advice.trained.tasks import task_of
from ..advice.trained.training import model_of, optimizer_of

STEPS_A_DECADE = 3
_LOWEST, _HIGHEST = -15, 4
"""Steps about the rate at which the first update is as long as the weights."""


def changes_along(case: Case, *, text_file: str, corpus: str) -> dict[str, Any]:
    """E(f(x, θ*) - f(x, θ))² over E f² of the logits, by the first update at rising rates, on its own batch."""
    task = task_of(case, text_file, corpus)
    model, batch = model_of(case, task), task.batch(0)
    _, line = first_update(model, batch.run, batch.loss, of_config(model, optimizer_of(case, 1.0)).over_one)
    model.eval()
    rates = [line.reach * 10 ** (step / STEPS_A_DECADE) for step in range(_LOWEST, _HIGHEST + 1)]
    changes = []
    with torch.no_grad():
        before = batch.run(model)
        with line.moving() as move:
            for rate in rates:
                move(rate)
                changes.append(_relative(before, batch.run(model)))
    return {"rates": rates, "changes": changes}


def trials_at(case: Case, steps: Sequence[int], *, updates: int, text_file: str, corpus: str) -> list[dict[str, Any]]:
    """What the doctor's short training shows at each rung of the ladder of rates, on batches in another order."""
    model = model_of(case, task_of(case, text_file, corpus))
    batches = batches_of(task_of(case, text_file, corpus, case.seed + PROBE_SEED))
    maker = of_config(model, optimizer_of(case, 1.0))
    found = []
    with restored(model) as put_back:
        for step in steps:
            put_back()
            trial = train_shortly(model, batches, maker, rate=rate_of(step), updates=updates)
            found.append({"losses": trial.losses, "spreads": trial.spreads})
    return found


def vocabulary_of(case: Case, *, text_file: str, corpus: str) -> int:
    """Of the case's logits."""
    task = task_of(case, text_file, corpus)
    return int(_logits(task.model(case.seed), task.batch(0)).shape[-1])


@torch.no_grad()
def _logits(model: nn.Module, batch: TrainingBatch) -> Tensor:
    found: Tensor = batch.run(model)
    return found


def _relative(before: Tensor, after: Tensor) -> float:
    return float((after - before).square().sum() / before.square().sum())
