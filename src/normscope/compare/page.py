"""The way from the run folders of a grid to the page and its data, `results.json`: everything on it
is read from the runs.
"""

import json
import math
import shlex
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import is_of_the_disk, write_over
from ..limits import kinds
from ..limits.ours import refuse_other
from ..placement import AsBuilt, named
from ..processes.surroundings import is_held
from ..provenance import provenance
from ..report.comparison import contents
from ..report.comparison.page import PAGE, write
from ..report.comparison.targets import TargetWords
from ..report.plain import plain_values
from ..report.words import learning_rate, short_name
from ..train.record import RunRecord, record_of
from . import curves
from .conclusion import conclusion, formula_in
from .facts import (
    facts,
    facts_of_absence,
    facts_of_costs,
    facts_of_stopping,
    facts_of_weights,
)
from .grid import Arm, Cell
from .manifest import Manifest
from .pool import train_command
from .targets import ACCURACY, accuracy_in, words_for
from .verdict import ConfigurationOutcome, JudgedRuns, judged, summary, verdict


def results(page: contents.ComparisonPage) -> dict[str, Any]:
    """Returns plain values; null stands for numbers that are not finite, which JSON does not
    have.
    """
    return {
        "title": page.title,
        "created": page.created,
        **provenance(),
        "conclusion": list(page.conclusion),
        "chance_nll_nats": page.unigram_loss_nats,
        "targets": {
            "one": page.words.one,
            "commonest_label_share": page.words.commonest_share,
            "labels": page.words.classes,
        },
        "arms": [_configuration_data(configuration) for configuration in page.configurations],
        "validation": [
            {
                **_name_data(one.name),
                "updates": list(one.updates),
                "seeds_values": plain_values(one.seeds_values),
            }
            for one in page.valid_curves
        ],
        # Final losses over the rate, and the sensitivity to it over the rates that all
        # configurations have.
        "learning_rate_sensitivity": {
            "source": "Wortsman et al. 2023, arXiv:2309.14322",
            "unit": "nats per target token",
            "rates": list(page.shared_lrs),
            "arms": [_rate_curve_data(curve) for curve in page.rate_curves],
        },
        "gradient_norm_at_update_0": [_profile_data(profile) for profile in page.gradient_profiles],
        "what": dict(page.what),
        "formulas": dict(page.formulas),
        "commands": list(page.commands),
        "environment": dict(page.environment),
    }


def _name_data(name: contents.Name) -> dict[str, str]:
    return {"label": str(name), "placement": name.group, "variant": name.variant}


def _configuration_data(configuration: contents.ComparedConfiguration) -> dict[str, Any]:
    return _name_data(configuration.name) | {
        "warmup_updates": configuration.warmup_updates,
        "peak_lr": configuration.peak_lr,
        "optimizer": configuration.optimizer,
        "seeds": [plain_values(seed) for seed in configuration.seeds],
        "verdict": configuration.verdict.text,
    }


def _rate_curve_data(curve: contents.RateCurve) -> dict[str, Any]:
    names = {
        "name": str(curve.name),
        "configurations": [str(name) for name in curve.configurations],
    }
    return {**_name_data(curve.name), **plain_values(curve), **names}


def _profile_data(profile: contents.GradientProfile) -> dict[str, Any]:
    return _name_data(profile.name) | {
        "labels": [str(name) for name in profile.names],
        "blocks": [str(block) for block in profile.blocks],
        "seeds_norms": plain_values(profile.seeds_norms),
    }


_RunsOfArms = dict[Arm, list[tuple[Cell, RunRecord]]]
"""The runs of each configuration, with what they have logged."""
RESULTS = "results.json"
_MOST_DRAWN, _MOST_BEST = 12, 40
"""Configurations that one figure over updates draws; of more, the best of each curve over the rate,
and of very many of these the ones that ended lowest."""
_ENDS = ("finished", "non-finite", "decided", "missing")


def refuse_other_report(folder: Path) -> None:
    """Raise UserError where a report of another's stands in `folder`: to be asked before long
    work.
    """
    refuse_other(folder / PAGE, kinds.PAGE)
    refuse_other(folder / RESULTS, kinds.RESULTS)


def compare(
    cells: list[Cell], manifest: Manifest, folder: Path
) -> tuple[contents.ComparisonPage, Path]:
    """Read all runs of the grid and write `report.html`, its SVG files and `results.json` into
    `folder`.

    Raises UserError as `refuse_other_report`.
    """
    refuse_other_report(folder)
    page = read(cells, manifest)
    file = write(page, folder)
    write_over(folder / RESULTS, json.dumps(results(page), indent=1) + "\n", kinds.RESULTS)
    return page, file


def read(cells: list[Cell], manifest: Manifest) -> contents.ComparisonPage:
    """Returns all runs of the grid as the contents of their page. A run whose log is damaged is one
    that failed.
    """
    unigram, words = manifest.corpus.unigram_nats, words_for(manifest.corpus.targets)
    by_arm, failed = _by_arm(cells, manifest.failed)
    names = configuration_names(list(by_arm))
    rows = _rows(by_arm, failed, names, manifest.own_placement)
    found = judged(rows, unigram)
    ran = [
        curves.EndedRun(arm, result, record)
        for (arm, runs), row in zip(by_arm.items(), rows, strict=True)
        for (_, record), result in zip(runs, row.seeds, strict=True)
    ]
    by_rate, shared_lrs = curves.rate_curves(ran, names, words.short_unit)
    drawn = _drawn(ran, has_rates=bool(by_rate))
    named_runs = [(names[arm], runs) for arm, runs in by_arm.items() if arm in drawn]
    left_out = [(names[arm], runs) for arm, runs in by_arm.items() if arm not in drawn]
    placements = dict.fromkeys([arm.placement for arm in by_arm])
    same_length = len({cell.config.train.duration for cell in cells}) == 1
    same = ", data and number of updates" if same_length else " and data"
    return contents.ComparisonPage(
        title=manifest.title,
        subtitle=f"The same model{same} in every row; what differs is named in the row.",
        conclusion=conclusion(found, unigram, words),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        configurations=[
            _configuration(arm, one, unigram, words) for arm, one in zip(by_arm, found, strict=True)
        ],
        unigram_loss_nats=unigram,
        words=words,
        valid_curves=[curves.curve(name, runs, "validation") for name, runs in named_runs],
        train_curves=[curves.curve(name, runs, "update") for name, runs in named_runs],
        gradient_profiles=curves.gradient_profiles(named_runs),
        gradient_curves=[
            curves.curve(name, runs, "update", "gradient_norm") for name, runs in named_runs
        ],
        schedules=[curves.schedule(name, runs) for name, runs in named_runs],
        rate_curves=by_rate,
        shared_lrs=shared_lrs,
        clocks={
            name: told for name, runs in (*named_runs, *left_out) if (told := curves.clock(runs))
        },
        undrawn_curves=[curves.curve(name, runs, "validation") for name, runs in left_out],
        later_profiles=curves.later_profiles(named_runs),
        what=_what(cells, manifest, by_arm, rows),
        formulas=[(named(one).title, formula_in(one, cells[0].config)) for one in placements],
        commands=[
            *manifest.commands,
            *(shlex.join(["python", *train_command(cell)]) for cell in cells),
        ],
        environment=_environment(cells),
    )


def _rows(
    by_arm: _RunsOfArms,
    failed: Mapping[str, str],
    names: Mapping[Arm, contents.Name],
    own_placement: str,
) -> list[JudgedRuns]:
    """Returns the configurations with their runs, as the verdict reads them.

    failed: what is said of each run that failed. own_placement: of the user's model as its code
    builds it, where the doctor is sure of one.
    """
    settings = _settings(list(by_arm))
    # Beside runs that were given the same placement, `own` is another model with it.
    given = {arm.placement for arm in by_arm}
    told = "" if own_placement in given else own_placement
    judged = []
    for arm, runs in by_arm.items():
        seeds = [_seed_result(cell, record, failed.get(cell.name)) for cell, record in runs]
        row = JudgedRuns(
            name=names[arm],
            placement=arm.placement,
            named_as=told if issubclass(named(arm.placement), AsBuilt) else "",
            warmup_updates=arm.warmup_updates,
            setting=settings[arm],
            seeds=tuple(seeds),
        )
        judged.append(row)
    return judged


def _drawn(ran: Sequence[curves.EndedRun], *, has_rates: bool) -> set[Arm]:
    """Returns the configurations that the figures over updates draw."""
    arms = {one.arm for one in ran}
    if has_rates and len(arms) > _MOST_DRAWN:
        arms = curves.best_of_each(ran)
    return curves.lowest([one for one in ran if one.arm in arms], _MOST_BEST)


def _what(
    cells: Sequence[Cell], manifest: Manifest, by_arm: _RunsOfArms, rows: Sequence[JudgedRuns]
) -> list[tuple[str, str]]:
    """Returns the rows of the table of what was compared. rows: of the configurations, as in
    `by_arm`.
    """
    records = [
        (f"{row.name}, seed {cell.seed}", record)
        for row, runs in zip(rows, by_arm.values(), strict=True)
        for cell, record in runs
    ]
    seeds = [len(runs) for runs in by_arm.values()]
    return [
        *facts(
            [cell.config for cell in cells],
            manifest.corpus.facts,
            seeds=seeds,
            words=words_for(manifest.corpus.targets),
        ),
        *facts_of_stopping(rows),
        *facts_of_absence(records),
        *facts_of_costs(manifest.costs),
        *facts_of_weights(manifest.weights),
    ]


def _by_arm(cells: Sequence[Cell], failed: Mapping[str, str]) -> tuple[_RunsOfArms, dict[str, str]]:
    """Returns the runs of each configuration with what they have logged, and those that failed: one
    whose log is damaged did.
    """
    by_arm: _RunsOfArms = defaultdict(list)
    failures = dict(failed)
    for cell in cells:
        try:
            record = cell.folder.record()
        except UserError as error:
            if is_of_the_disk(error):
                raise  # a page without the run would say that it failed
            record, failures[cell.name] = record_of([]), str(error)
        by_arm[cell.arm].append((cell, record))
    return by_arm, failures


def configuration_names(arms: Sequence[Arm]) -> dict[Arm, contents.Name]:
    """Returns a short name for each: placement and warm-up, and rate and optimiser where they
    differ within the grid.
    """
    settings = _settings(arms)
    return {
        arm: contents.Name(
            named(arm.placement).title, ", ".join(filter(None, (arm.warmup_label, settings[arm])))
        )
        for arm in arms
    }


def _settings(arms: Sequence[Arm]) -> dict[Arm, str]:
    """Returns the rate and optimiser of each where they differ within the grid."""
    rates, optimizers = {arm.peak_lr for arm in arms}, {arm.optimizer for arm in arms}
    return {
        arm: ", ".join(
            ([f"rate {learning_rate(arm.peak_lr)}"] if len(rates) > 1 else [])
            + ([arm.optimizer] if len(optimizers) > 1 else [])
        )
        for arm in arms
    }


def _configuration(
    arm: Arm, one: ConfigurationOutcome, unigram: float, words: TargetWords
) -> contents.ComparedConfiguration:
    return contents.ComparedConfiguration(
        name=one.row.name,
        warmup_updates=arm.warmup_updates,
        peak_lr=arm.peak_lr,
        optimizer=arm.optimizer,
        seeds=one.row.seeds,
        verdict=verdict(one, words),
        summary=summary(one, unigram, words),
    )


def _seed_result(cell: Cell, record: RunRecord, failure: str | None) -> contents.SeedResult:
    last = record.last or {"event": contents.Status.MISSING.value, "update": 0}
    status = _status(last["event"], cell)
    if status not in (contents.Status.UNFINISHED, contents.Status.MISSING):
        failure = None  # it has gone on since
    rates = record.column("update", "lr")
    return contents.SeedResult(
        seed=cell.seed,
        status=status if failure is None else contents.Status.FAILED,
        updates=last["update"],
        valid_loss_nats=math.nan
        if status is contents.Status.NON_FINITE
        else _last_finite(record.column("validation", "nll_nats")),
        scores=_scores(cell, record),
        accuracy=accuracy_in(record),
        summed_lr=math.fsum(rates[np.isfinite(rates)]),
        message=failure or last.get("reason", ""),
    )


def _last_finite(column: NDArray[np.float64]) -> float | None:
    """Returns the last finite entry; None where there is none."""
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else None


def _scores(cell: Cell, record: RunRecord) -> dict[str, float]:
    """Scores of every split that the best checkpoint was evaluated on, and the last of those made
    while training.
    """
    in_training = _last_finite(record.column("validation", "bleu"))
    found = {} if in_training is None else {"BLEU, valid, while training": in_training}
    for name, value in record.metrics.items():
        if name != ACCURACY:
            found[f"{short_name(name)}, valid"] = value
    if (right := accuracy_in(record)) is not None:
        found["accuracy, valid (%)"] = 100 * right
    for name, scores in cell.evaluations().items():
        split = short_name(name)
        for key, heading in (
            ("bleu", f"BLEU, {split}"),
            ("bleu_tokenised", f"BLEU, {split}, tokenised"),
        ):
            if key in scores:
                found[heading] = scores[key]
    return found


def _status(last_event: str, cell: Cell) -> contents.Status:
    """Returns the status of a run whose last event this is."""
    if last_event in _ENDS:
        return contents.Status(last_event)
    return contents.Status.RUNNING if is_held(cell.folder.path) else contents.Status.UNFINISHED


def _environment(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    found = next(filter(None, map(_environment_of, cells)), {})
    software = ("normscope", "commit", "source_sha256", "python", "torch")
    machine = ("platform", "processor", "cores", "threads", "accelerator", "fast_matmul")
    shown = (*software, *machine)
    return [(key, str(found[key])) for key in shown if found.get(key) not in (None, "")]


def _environment_of(cell: Cell) -> dict[str, Any]:
    try:
        return cell.folder.environment()
    except UserError as error:
        if is_of_the_disk(error):
            raise
        return {}  # damaged, which resuming the run says
