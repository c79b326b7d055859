"""What the page of a comparison says of its runs: the data, the model, the loss, and the formula of each placement."""

from collections.abc import Sequence
from typing import Any

from ...optim import parse_duration
from ...placement import named
from ...placement.printing import formula
from ...report.comparison.contents import Status, TunedArm
from ...report.words import counted, joined
from ...tasks.protocol import Facts, TaskFromScratch
from ...tasks.registry import task_from_scratch
from ...tasks.run_config import RunConfig
from .verdict import LEARNED_BELOW, MOST_OF_THE_GAIN, WORSE_ABOVE, Row


def formula_in(placement: str, config: RunConfig) -> str:
    """The formula with the constants of this model; encoder and decoder apart where they differ."""
    found = {shape.kind: formula(named(placement), shape) for shape in _task(config).shapes(config)}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{kind}: {text}" for kind, text in found.items())


def facts(configs: Sequence[RunConfig], corpus_facts: Facts, *, seeds: Sequence[int]) -> Facts:
    """What the runs of a comparison share, as rows of a table. seeds: how many each configuration has."""
    config = configs[0]
    model, train = config.model, config.train
    task = _task(config)
    return [
        *corpus_facts,
        (
            "Model",
            f"{'+'.join(str(shape.blocks) for shape in task.shapes(config))} blocks, width {model.width}, "
            f"feed-forward {model.ffn_width}, {model.heads} heads, dropout {model.dropout:g}, norm {model.norm}, "
            f"initialisation {model.initialisation}",
        ),
        ("Duration", f"{_durations(configs)} of at most {task.batch_words(config)} per update"),
        ("Schedule", f"{config.schedule.decay} after the warm-up; cumulative learning rates are in the table"),
        ("Loss", task.loss_words(config)),
        ("Precision", f"{train.precision} on {train.device}, {train.threads} thread(s) per run"),
        ("Seeds", f"{' to '.join(map(str, dict.fromkeys((min(seeds), max(seeds)))))} per row"),
        ("Unigram baseline", "the entropy of the targets' tokens: the loss of a model that ignores its input"),
        ("Learned", f"last validation loss under {LEARNED_BELOW:.0%} of the unigram baseline"),
        (
            "Learned less",
            f"learned, and gained under {MOST_OF_THE_GAIN:.0%} of what the best configuration gained on it",
        ),
        ("No better", f"from {LEARNED_BELOW:.0%} to {WORSE_ABOVE:.0%} of it; worse: above {WORSE_ABOVE:.0%}"),
        ("Best", "the lowest mean loss of all configurations whose every run learned"),
    ]


def facts_of_tuning(arms: Sequence[TunedArm], seeds: Sequence[int]) -> Facts:
    """How the peak rates were found, where they were searched; seeds: of the trials."""
    if not arms:
        return []
    counts = sorted({arm.trials for arm in arms})
    each = f"{counts[0]} trials" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} trials, not the same number"
    return [("Tuning", f"peak rate of each arm by {each}, with seed {joined([str(seed) for seed in seeds])}")]


def facts_of_stopping(rows: Sequence[Row]) -> Facts:
    """Which runs were stopped early, when and why, where some were."""
    runs = [(row, seed) for row in rows for seed in row.seeds]
    early = [(row, seed) for row, seed in runs if seed.status is Status.DECIDED]
    if not early:
        return []
    listed = "; ".join(
        f"{row.name}, seed {seed.seed}, after update {seed.updates}: {seed.message}" for row, seed in early
    )
    return [
        (
            "Stopped early",
            f"{len(early)} of {counted(len(runs), 'run')} ({listed}). This is a rule and no proof: a run that goes on "
            "may still learn",
        )
    ]


def _durations(configs: Sequence[RunConfig]) -> str:
    parsed = dict.fromkeys(parse_duration(config.train.duration) for config in configs)
    accumulation = configs[0].train.accumulation
    batches = "1 batch" if accumulation == 1 else f"{accumulation} batches"
    return f"{' or '.join(f'{float(number):g} {unit}' for number, unit in parsed)}; {batches}"


def _task(config: RunConfig) -> TaskFromScratch[Any, Any, Any, Any]:
    return task_from_scratch(config, f"task {config.task} has no comparison")
