"""What is known of a case before it is trained: changes along rates, predicted changes, short trainings."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normscope.doctor.advise.first_update import first_update
from normscope.doctor.advise.optimizers import of_config
from normscope.doctor.advise.rule import ModelFacts
from normscope.doctor.advise.short_run import train_shortly
from normscope.errors import UserError
from normscope.measure.unchanged import restored
from normscope.tasks.protocol import TrainingBatch
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, Update, predict

from ..advice.cases import HEAD_WIDTH, AdviceCase, rate_of
from ..advice.facts import PROBE_SEED, batches_of
from ..advice.ladder import TrainedCase
from ..advice.tasks import task_of
from ..advice.training import model_of, optimizer_of

STEPS_A_DECADE = 3
_LOWEST, _HIGHEST = -15, 4
"""Steps about the rate at which the first update is as long as the weights."""


def changes_along(case: AdviceCase, *, text_file: str, corpus: str) -> dict[str, Any]:
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


def trials_at(
    case: AdviceCase, steps: Sequence[int], *, updates: int, text_file: str, corpus: str
) -> list[dict[str, Any]]:
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


def vocabulary_of(case: AdviceCase, *, text_file: str, corpus: str) -> int:
    """Of the case's logits."""
    task = task_of(case, text_file, corpus)
    return int(_logits(task.model(case.seed), task.batch(0)).shape[-1])


@torch.no_grad()
def _logits(model: nn.Module, batch: TrainingBatch) -> Tensor:
    found: Tensor = batch.run(model)
    return found


def _relative(before: Tensor, after: Tensor) -> float:
    return float((after - before).square().sum() / before.square().sum())


def predicted_change(case: AdviceCase, *, vocabulary: int) -> float | None:
    """E‖δy‖² / d of the stack's output at a rate of 1, to first order; None where theory does not follow.

    The change goes as the square of the rate. One sequence of tokens that all differ, random targets. Theory follows
    one stack: an encoder-decoder is read as an encoder of as many blocks as both of its stacks have.
    """
    stack: Literal["encoder", "decoder"] = "decoder" if case.architecture == "decoder" else "encoder"
    model = ModelSetting(
        stack=stack,
        blocks=case.blocks * (2 if case.architecture == "encoder-decoder" else 1),
        width=case.width,
        ffn_width=2 * case.width,
        heads=case.width // HEAD_WIDTH,
        tokens=case.length,
        vocabulary=vocabulary,
        setting=case.initialisation,
    )
    try:
        change = predict(case.placement, model, update=Update(optimizer=case.optimizer, rate=1.0))[stack].change
    except Unpredictable:
        return None
    return change.output if change is not None and 0 < change.output < math.inf else None


def known_in(file: Path) -> list[TrainedCase]:
    """Raises UserError for a file that is not there, or that holds something else."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{file}: {error.strerror or error}; --set known=FILE names the results.json of `normscope study advice`"
        ) from None
    try:
        table = json.loads(text)
        return [_known(AdviceCase(**case), table["cases"]) for case in table["settings"]["cases"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} is not a results.json of `normscope study advice` ({type(error).__name__}: {error}); name one by "
            "--set known=FILE"
        ) from None


def _known(case: AdviceCase, tables: dict[str, Any]) -> TrainedCase:
    table = tables[case.name]
    return TrainedCase(
        case=case,
        facts=ModelFacts(**table["facts"]),
        outcomes={
            _step_of(one["rate"]): {"valid_nats": one["valid_nats"], "unigram_nats": table["unigram_nats"]}
            for one in table["trainings"]
        },
    )


def _step_of(rate: float) -> int:
    step = round(math.log2(rate / rate_of(0)))
    if not math.isclose(rate, rate_of(step), rel_tol=1e-6):
        raise ValueError(f"{rate} is no rung of the ladder")
    return step
