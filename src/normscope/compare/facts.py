"""The table of what was compared: what the runs of a comparison share, and what is to be known of
them beside their numbers.
"""

from collections.abc import Mapping, Sequence

from ..optim import parse_duration
from ..placement import AsBuilt, named
from ..report.comparison.contents import Status
from ..report.comparison.targets import TOKENS, TargetWords
from ..report.words import counted, joined, short_name, significant
from ..tasks.protocol import StartingWeights
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train.record import RunRecord
from .verdict import LEARNED_BELOW, MOST_OF_THE_GAIN, WORSE_ABOVE, JudgedRuns


def facts(
    configs: Sequence[RunConfig],
    corpus_facts: Sequence[tuple[str, str]],
    *,
    seeds: Sequence[int],
    words: TargetWords = TOKENS,
) -> list[tuple[str, str]]:
    """Returns the properties that the runs of a comparison share, as rows of a table. seeds: the
    number for each configuration. words: those of their data.
    """
    config = configs[0]
    task = task_of(config)
    lengths = dict.fromkeys(parse_duration(one.train.duration) for one in configs)
    duration = " or ".join(f"{float(length):g} {unit}" for length, unit in lengths)
    accumulation = config.train.accumulation
    batches = "1 batch" if accumulation == 1 else f"{accumulation} batches"
    return [
        *corpus_facts,
        ("Model", task.described(config)),
        ("Duration", f"{duration}; {batches} of at most {task.batch_words(config)} per update"),
        (
            "Schedule",
            f"{config.schedule.decay} after the warm-up; cumulative learning rates are in the "
            "table",
        ),
        ("Loss", task.loss_words(config)),
        ("Precision", _precision(configs)),
        ("Seeds", f"{' to '.join(map(str, dict.fromkeys((min(seeds), max(seeds)))))} per row"),
        *_guessing(words),
        ("Learned", f"last validation loss under {LEARNED_BELOW:.0%} of the {words.baseline}"),
        (
            "Learned less",
            f"learned, and gained under {MOST_OF_THE_GAIN:.0%} of what the best configuration "
            "gained on it",
        ),
        ("Hardly better", f"from {LEARNED_BELOW:.0%} of it up to the baseline itself"),
        ("No better", f"from the baseline to {WORSE_ABOVE:.0%} of it; worse: above that"),
        ("Best", "the lowest mean loss of all configurations whose every run learned"),
    ]


def _guessing(words: TargetWords) -> list[tuple[str, str]]:
    """Rows that say what a model reaches which does not look."""
    if words.short == "token":
        is_called = "the entropy of the targets' tokens: the loss of a model that ignores its input"
        return [("Unigram baseline", is_called)]
    rows = [(f"{words.baseline[0].upper()}{words.baseline[1:]}", words.baseline_is)]
    if words.is_classification:
        rows.append(("Right without looking", f"{words.guesses}, of {words.classes} labels"))
    return rows


def _precision(configs: Sequence[RunConfig]) -> str:
    """Returns the precision, device and threads of the first run for which a machine has been
    found.
    """
    for config in configs:
        train = config.train
        if "auto" not in (train.precision, train.device):
            return f"{train.precision} on {train.device}, {train.threads} thread(s) per run"
    return "as the machine that trains has it"


def facts_of_stopping(rows: Sequence[JudgedRuns]) -> list[tuple[str, str]]:
    """Returns which runs were stopped early, when and why; empty where none were."""
    runs = [(row, seed) for row in rows for seed in row.seeds]
    early = [(row, seed) for row, seed in runs if seed.status is Status.DECIDED]
    if not early:
        return []
    listed = "; ".join(
        f"{row.name}, seed {seed.seed}, after update {seed.updates}: {seed.message}"
        for row, seed in early
    )
    return [
        (
            "Stopped early",
            f"{len(early)} of {counted(len(runs), 'run')} ({listed}). This is a rule and no proof: "
            "a run that goes on may still learn",
        )
    ]


def facts_of_absence(records: Sequence[tuple[str, RunRecord]]) -> list[tuple[str, str]]:
    """Returns the quantities that logs lack though this version logs them, and the events that it
    does not know; records: by the name of their run.
    """
    rows = []
    for name, record in records:
        told = [f"no {absent}" for absent in record.absent]
        others = sum(record.unknown.values())
        if others:
            kinds = short_name(joined(sorted(record.unknown)))
            told.append(f"{counted(others, 'event')} of a kind that is not known here ({kinds})")
        if told:
            rows.append((f"Log of {name}", f"{'; '.join(told)}; the rest is shown"))
    return rows


def facts_of_costs(costs: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str]]:
    """Returns a row for each placement, in multiples of what the model as it is built takes, or
    else of the first.
    """
    rows = []
    first = costs.get(AsBuilt.name) or next(iter(costs.values()), {})
    for name, cost in costs.items():
        words = (
            f"{cost['parameters']:,} parameters, {significant(cost['memory_bytes'] / 1e6)} MB, "
            f"{significant(1e3 * cost['seconds'])} ms a batch"
        )
        if cost is not first:
            memory, time = (cost[key] / first[key] for key in ("memory_bytes", "seconds"))
            words += f": {memory:.2f} times the memory and {time:.2f} times the time"
        rows.append((f"Cost of {_title(name)}", words))
    return rows


def facts_of_weights(weights: Mapping[str, StartingWeights]) -> list[tuple[str, str]]:
    """Returns the starting weights of each placement, and which of them differ in more than the
    placement.
    """
    titles = {name: _title(name) for name in weights}
    rows = [(f"Weights of {titles[name]}", one.told) for name, one in weights.items()]
    confounded = not_comparable(weights)
    return [*rows, ("Not comparable", confounded)] if confounded else rows


def not_comparable(weights: Mapping[str, StartingWeights]) -> str:
    """Returns the placements that differ from the model as it is built in more than the placement,
    in words; "" for none.
    """
    unlike = [
        f"{_title(name)} ({one.unlike_own})" for name, one in weights.items() if one.unlike_own
    ]
    if not unlike or AsBuilt.name not in weights:
        return ""
    return (
        f"{AsBuilt.title} beside {'; '.join(unlike)}: these matrices start with entries of so many "
        "times the size that the model's own code draws, so that a difference is of placement and "
        "initial weights together"
    )


def _title(placement: str) -> str:
    """Returns the title of a registered placement, or the name of one whose file has not been
    imported.
    """
    try:
        return named(placement).title
    except ValueError:
        return short_name(placement)
