"""What the doctor asks of a case without a measurement, and what it sees in a probe of it."""

from dataclasses import asdict
from typing import Any

from normscope.doctor.advise.advice import facts_of
from normscope.doctor.advise.optimizers import of_config
from normscope.doctor.advise.probe import probe
from normscope.doctor.advise.short_run import ShortRun, TrainingBatches
from normscope.doctor.find.search import streams_in
from normscope.doctor.identify.stacks import as_stacks

from .cases import AdviceCase
from .fit import no_rule
from .tasks import CaseTask, task_of
from .training import model_of, optimizer_of

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
