"""From the run folders of a grid to the page and its data: everything on it is read from the runs."""

import json
import math
import shlex
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import UserError
from ...files import write_atomically
from ...placement import named
from ...report.comparison.contents import Comparison, Configuration, Name, SeedResult, Status
from ...report.comparison.page import write
from ...report.numbers import number, significant
from ...train.run_folder import Event
from .curves import Runs, gradient_profile, loss_curve, schedule
from .facts import facts, formula_in
from .grid import Arm, Cell
from .locks import is_held
from .manifest import Manifest
from .pool import train_command
from .results import results
from .verdict import verdict


def compare(cells: list[Cell], manifest: Manifest, folder: Path) -> tuple[Comparison, Path]:
    """Read all runs of the grid and write `report.html`, its SVG files and `results.json` into `folder`.

    A run whose log is damaged is one that failed.
    """
    unigram, failed = manifest.corpus.unigram_nats, dict(manifest.failed)
    by_arm: dict[Arm, list[tuple[Cell, list[Event]]]] = defaultdict(list)
    for cell in cells:
        try:
            events = cell.folder.events()
        except UserError as error:
            events, failed[cell.name] = [], str(error)
        by_arm[cell.arm].append((cell, events))
    names = configuration_names(list(by_arm))
    named_runs = [(names[arm], runs) for arm, runs in by_arm.items()]
    first = cells[0].config
    page = Comparison(
        title=manifest.title,
        subtitle=_subtitle(cells),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        configurations=[_configuration(arm, names[arm], runs, unigram, failed) for arm, runs in by_arm.items()],
        unigram_loss_nats=unigram,
        valid_curves=[loss_curve(name, runs, "validation") for name, runs in named_runs],
        train_curves=[loss_curve(name, runs, "update") for name, runs in named_runs],
        gradient_profiles=[p for name, runs in named_runs if (p := gradient_profile(name, runs)) is not None],
        schedules=[schedule(name, runs) for name, runs in named_runs],
        what=facts([cell.config for cell in cells], manifest.corpus.facts, seeds=list(map(len, by_arm.values()))),
        formulas=[(named(p).title, formula_in(p, first)) for p in dict.fromkeys(arm.placement for arm in by_arm)],
        commands=[*manifest.commands, *(shlex.join(["python", *train_command(cell)]) for cell in cells)],
        environment=_environment(cells),
    )
    file = write(page, folder)
    write_atomically(folder / "results.json", json.dumps(results(page), indent=1) + "\n")
    return page, file


def _subtitle(cells: Sequence[Cell]) -> str:
    same = "The same model and data in every row"
    if len({cell.config.train.duration for cell in cells}) == 1:
        same = "The same model, data and number of updates in every row"
    return f"{same}; what differs is named in the row."


def configuration_names(arms: Sequence[Arm]) -> dict[Arm, Name]:
    """A short name for each: placement and warm-up, and rate and optimiser where they differ within the grid."""
    rates, optimizers = {arm.peak_lr for arm in arms}, {arm.optimizer for arm in arms}
    return {
        arm: Name(
            named(arm.placement).title,
            ", ".join(
                [arm.warmup_label]
                + ([f"rate {arm.peak_lr:g}"] if len(rates) > 1 else [])
                + ([arm.optimizer] if len(optimizers) > 1 else [])
            ),
        )
        for arm in arms
    }


def _configuration(arm: Arm, name: Name, runs: Runs, unigram: float, failed: Mapping[str, str]) -> Configuration:
    seeds = [_seed_result(cell, events, failed.get(cell.name)) for cell, events in runs]
    return Configuration(
        name=name,
        warmup_updates=arm.warmup_updates,
        peak_lr=arm.peak_lr,
        optimizer=arm.optimizer,
        seeds=seeds,
        verdict=verdict(seeds, unigram),
        summary=_sentence(name, seeds, unigram),
    )


def _seed_result(cell: Cell, events: Sequence[Event], failure: str | None) -> SeedResult:
    last: Event = events[-1] if events else {"event": Status.MISSING.value, "update": 0}
    status = _status(last["event"], cell)
    if status not in (Status.UNFINISHED, Status.MISSING):
        failure = None  # it has gone on since
    losses = [event["nll_nats"] for event in events if event["event"] == "validation"]
    scores = cell.evaluation()
    in_training = [event["bleu"] for event in events if event["event"] == "validation" and "bleu" in event]
    return SeedResult(
        seed=cell.seed,
        status=status if failure is None else Status.FAILED,
        updates=last["update"],
        valid_loss_nats=math.nan if status is Status.NON_FINITE else (losses[-1] if losses else None),
        bleu=scores.get("bleu", in_training[-1] if in_training else None),
        bleu_tokenised=scores.get("bleu_tokenised"),
        summed_lr=math.fsum(event["lr"] for event in events if event["event"] == "update"),
        message=failure or last.get("reason", ""),
    )


def _status(last_event: str, cell: Cell) -> Status:
    """How far a run is whose last event this is."""
    ends = {status.value: status for status in (Status.FINISHED, Status.NON_FINITE, Status.MISSING)}
    return ends.get(last_event) or (Status.RUNNING if is_held(cell.folder.path) else Status.UNFINISHED)


def _sentence(name: Name, seeds: Sequence[SeedResult], unigram: float) -> str:
    losses = [s.valid_loss_nats for s in seeds if s.valid_loss_nats is not None and math.isfinite(s.valid_loss_nats)]
    if not losses:
        return str(name)
    mean = math.fsum(losses) / len(losses)
    return (
        f"{name}: validation loss {number(mean, 2)} nats per token, a perplexity of {significant(math.exp(mean), 3)}; "
        f"the unigram baseline has {number(unigram, 2)}"
    )


def _environment(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    found = next((e for cell in cells if (e := cell.folder.environment())), {})
    software = ("normscope", "commit", "source_sha256", "python", "torch")
    machine = ("platform", "processor", "cores", "threads", "accelerator", "fast_matmul")
    shown = (*software, *machine)
    return [(key, str(found[key])) for key in shown if found.get(key) not in (None, "")]
