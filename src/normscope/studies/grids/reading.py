"""From the run folders of a grid to the page: verdicts, curves, tables, commands. All of it is read, none kept."""

import json
import math
import shlex
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ... import __version__
from ...files import write_atomically
from ...optim import factor
from ...placement import named
from ...report.comparison import contents
from ...report.comparison.page import write
from ...train.run_folder import Event
from .facts import LEARNED_BELOW, AnyCorpus, chance_nats, facts, formula_in
from .grid import Arm, Cell
from .pool import train_command


def compare(
    cells: list[Cell], corpus: AnyCorpus, folder: Path, *, title: str, command: str, failed: Mapping[Cell, str]
) -> tuple[contents.Comparison, Path]:
    """Read all runs of the grid and write `report.html`, its SVG files and `results.json` into `folder`.

    failed: cells whose process has just ended without finishing its run, and what it said.
    """
    chance = chance_nats(corpus)
    by_arm: dict[Arm, list[tuple[Cell, list[Event]]]] = defaultdict(list)
    for cell in cells:
        by_arm[cell.arm].append((cell, cell.folder.events()))
    labels = arm_labels(list(by_arm))
    arms = [_arm(arm, labels[arm], runs, chance, failed) for arm, runs in by_arm.items()]
    first = cells[0].config
    page = contents.Comparison(
        title=title,
        subtitle="The same model, data and number of updates in every row; what differs is named in the row.",
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        summary=[_sentence(arm, chance) for arm in arms],
        arms=arms,
        chance_loss_nats=chance,
        valid_curves=[_curve(arm, labels[arm], runs, "validation", "nll_nats") for arm, runs in by_arm.items()],
        train_curves=[_curve(arm, labels[arm], runs, "update", "nll_nats") for arm, runs in by_arm.items()],
        gradient_profiles=[p for arm, runs in by_arm.items() if (p := _profile(arm, labels[arm], runs)) is not None],
        schedules=[_schedule(arm, labels[arm], runs) for arm, runs in by_arm.items()],
        what=facts(first, corpus, seeds=len({cell.seed for cell in cells})),
        formulas=[(named(p).title, formula_in(p, first)) for p in dict.fromkeys(arm.placement for arm in by_arm)],
        commands=[command, *(shlex.join(["python", *train_command(cell)]) for cell in cells)],
        environment=_environment(cells),
    )
    file = write(page, folder)
    write_atomically(folder / "results.json", json.dumps(_results(page, labels), indent=1) + "\n")
    return page, file


def arm_labels(arms: list[Arm]) -> dict[Arm, str]:
    """A short name for each arm: placement and warm-up, and rate and optimiser where they differ within the grid."""
    rates, optimizers = {arm.peak_lr for arm in arms}, {arm.optimizer for arm in arms}
    return {
        arm: ", ".join(
            [named(arm.placement).title, arm.warmup_label]
            + ([f"rate {arm.peak_lr:g}"] if len(rates) > 1 else [])
            + ([arm.optimizer] if len(optimizers) > 1 else [])
        )
        for arm in arms
    }


def _style(arm: Arm) -> str:
    return f"{named(arm.placement).title}|{arm.warmup_label}, {arm.peak_lr:g}, {arm.optimizer}"


def _arm(
    arm: Arm, label: str, runs: list[tuple[Cell, list[Event]]], chance: float, failed: Mapping[Cell, str]
) -> contents.Arm:
    seeds = [_seed_result(cell, events, failed.get(cell)) for cell, events in runs]
    return contents.Arm(
        label=label,
        placement=named(arm.placement).title,
        warmup_updates=arm.warmup_updates,
        peak_lr=arm.peak_lr,
        optimizer=arm.optimizer,
        seeds=seeds,
        verdict=verdict(seeds, chance),
    )


def _seed_result(cell: Cell, events: list[Event], failure: str | None) -> contents.SeedResult:
    last: Event = events[-1] if events else {"event": "missing", "update": 0}
    status: contents.Status = "missing"
    if events:
        status = last["event"] if last["event"] in ("finished", "non-finite") else "running"
    if failure is not None:
        status = "failed"
    losses = [event["nll_nats"] for event in events if event["event"] == "validation"]
    scores = cell.evaluation()
    in_training = [event["bleu"] for event in events if event["event"] == "validation" and "bleu" in event]
    return contents.SeedResult(
        seed=cell.seed,
        status=status,
        updates=last["update"],
        valid_loss_nats=math.nan if status == "non-finite" else (losses[-1] if losses else None),
        bleu=scores.get("bleu", in_training[-1] if in_training else None),
        bleu_tokenised=scores.get("bleu_tokenised"),
        summed_lr=math.fsum(event["lr"] for event in events if event["event"] == "update"),
        message=failure or last.get("reason", ""),
    )


def verdict(seeds: list[contents.SeedResult], chance_nats: float) -> str:
    """What became of an arm: learned, stuck at chance, diverged, failed, unfinished, or how many seeds learned."""

    def of_seed(result: contents.SeedResult) -> str:
        if result.status == "non-finite":
            return "diverged"
        if result.status == "failed":
            return "failed"
        if result.valid_loss_nats is None or result.status != "finished":
            return "unfinished"
        return "learned" if result.valid_loss_nats < LEARNED_BELOW * chance_nats else "stuck at chance"

    verdicts = [of_seed(result) for result in seeds]
    if len(set(verdicts)) == 1:
        return verdicts[0]
    learned = verdicts.count("learned")
    if learned:
        return f"partly learned: {learned} of {len(verdicts)} seeds"
    open_ends = {"unfinished", "failed"} & set(verdicts)
    return " or ".join(sorted(open_ends)) if open_ends else "diverged or stuck at chance"


def _sentence(arm: contents.Arm, chance: float) -> str:
    losses = [
        s.valid_loss_nats for s in arm.seeds if s.valid_loss_nats is not None and math.isfinite(s.valid_loss_nats)
    ]
    if not losses:
        return arm.label
    mean = math.fsum(losses) / len(losses)
    return f"{arm.label}: validation loss {mean:.2f} nats per token (chance {chance:.2f})"


def _curve(arm: Arm, label: str, runs: list[tuple[Cell, list[Event]]], kind: str, quantity: str) -> contents.Curve:
    measured = [{e["update"]: e[quantity] for e in events if e["event"] == kind} for _, events in runs]
    updates = sorted(set().union(*measured))
    rows = []
    for points, (_, events) in zip(measured, runs, strict=True):
        # A skipped update is a gap in its row.
        row = [points.get(update, math.nan) for update in updates if update <= max(points, default=0)]
        stopped = next((event["update"] for event in events if event["event"] == "non-finite"), None)
        if stopped is not None:
            row.append(math.nan)
            if len(row) > len(updates):
                updates.append(stopped)
        rows.append(row)
    return contents.Curve(label=label, style_key=_style(arm), updates=updates, seeds_values=rows)


def _profile(arm: Arm, label: str, runs: list[tuple[Cell, list[Event]]]) -> contents.GradientProfile | None:
    """Gradient norm of each block before the first update: the root of its parameters' summed squares."""
    rows = []
    blocks: list[str] = []
    for _, events in runs:
        for event in events:
            if event["event"] == "initialisation":
                squares = block_squares(event["gradient_norms"])
                blocks = list(squares)
                rows.append([math.sqrt(square) for square in squares.values()])
    if not rows:
        return None
    return contents.GradientProfile(label=label, style_key=_style(arm), blocks=blocks, seeds_norms=rows)


def block_squares(norms: dict[str, float]) -> dict[str, float]:
    """Summed squares of the gradient norms of each block's parameters; keys such as "encoder 1", in order of depth."""
    squares: dict[tuple[int, str, int], float] = defaultdict(float)
    for name, norm in norms.items():
        stack, *rest = name.split(".")
        if rest[:1] == ["blocks"]:
            squares[("encoder", "decoder").index(stack), stack, int(rest[1]) + 1] += norm**2
    return {f"{stack} {block}": squares[key] for key in sorted(squares) for _, stack, block in [key]}


def _schedule(arm: Arm, label: str, runs: list[tuple[Cell, list[Event]]]) -> contents.Curve:
    """The learning rate as it was applied; before anything has run, as it will be."""
    cell, events = runs[0]
    points = [(event["update"], event["lr"]) for event in events if event["event"] == "update"]
    if not points:
        horizon = cell.config.train.duration if isinstance(cell.config.train.duration, int) else 1
        rates = (factor(cell.config.schedule, u, horizon_updates=horizon) for u in range(1, horizon + 1))
        points = [(u, arm.peak_lr * rate) for u, rate in enumerate(rates, 1)]
    updates, values = zip(*points, strict=True)
    return contents.Curve(label=label, style_key=_style(arm), updates=list(updates), seeds_values=[list(values)])


def _environment(cells: list[Cell]) -> list[tuple[str, str]]:
    found = next((e for cell in cells if (e := cell.folder.environment())), {})
    shown = ("normscope", "python", "torch", "platform", "processor", "cores", "threads", "accelerator", "fast_matmul")
    return [(key, str(found[key])) for key in shown if found.get(key) not in (None, "")]


def _results(page: contents.Comparison, labels: dict[Arm, str]) -> dict[str, Any]:
    """The table and the curves as data, with what made them."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return None  # JSON has no NaN
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    return {
        "title": page.title,
        "created": page.created,
        "normscope": __version__,
        "chance_nll_nats": page.chance_loss_nats,
        "arms": [plain(asdict(arm)) for arm in page.arms],
        "validation": [plain(asdict(curve)) for curve in page.valid_curves],
        "gradient_norm_at_update_0": [plain(asdict(profile)) for profile in page.gradient_profiles],
        "what": dict(page.what),
        "formulas": dict(page.formulas),
        "commands": list(page.commands),
        "environment": dict(page.environment),
    }
