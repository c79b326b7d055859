"""`normscope train` begins or resumes one run, or says what it would take."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..processes.surroundings import rank_of_environment
from .console import TrainDisplay, say, stderr
from .help.options import described_by
from .shared import (
    COMPARE,
    ConfigFile,
    Imports,
    SettingOptions,
    StopWhen,
    Trust,
    read_config,
    resumable,
    spoken_once,
)

if TYPE_CHECKING:
    from ..runs.machine import Plan
    from ..tasks.run_config import RunConfig


def plan_lines(plan: "Plan", config: "RunConfig") -> Iterator[str]:
    """A table of memory by part."""
    batches = config.train.accumulation
    yield f"parameters: {plan.parameters:,}"
    yield (
        f"an update: {plan.flops_per_update:.3g} floating-point operations in {batches} "
        f"batch{'es' if batches > 1 else ''}"
    )
    rows = {
        "weights": plan.weights,
        "gradients": plan.gradients,
        f"optimiser ({config.optimizer.name})": plan.optimizer,
        "activations of one batch": plan.activations,
        "sum": plan.sum,
    }
    width = max(map(len, rows))
    yield "memory in MB:"
    for name, number in rows.items():
        yield f"{name:{width}}{number / 1e6:13,.1f}"


@described_by("api/runs.py:train", COMPARE)
@resumable()
def train(
    config: ConfigFile = None,
    *,
    run: Path | None = None,
    settings: SettingOptions = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    on_nonfinite: str | None = None,
    from_step: int | None,
    stop_when: StopWhen,
    dry_run: bool = False,
    trust: Trust = False,
) -> None:
    """Train one model, or resume a run that was stopped.

    What is trained:
        config, settings, imports, trust
        run: Run folder. By default runs/NAME-OF-CONFIG.

    How it goes:
        on_nonfinite: What to do when a loss or gradient is not finite: stop or skip.
        from_step, stop_when
        dry_run: Say what it would take in memory and arithmetic, and train nothing.

    For example:

    \b
      normscope train my.toml --run runs/first
    """
    if dry_run:
        _say_plan(config, settings, imports, trust)
        return
    overrides = [*settings, *([f'train.on_nonfinite="{on_nonfinite}"'] if on_nonfinite else [])]
    with spoken_once():
        _train(config, run, overrides, imports, from_step, stop_when)


def _train(
    config: Path | None,
    run: Path | None,
    overrides: list[str],
    imports: list[str],
    from_step: int | None,
    stop_when: str | None,
) -> None:
    given = read_config(config, overrides, imports)
    from ..adapters.tensorboard import TensorBoardLog
    from ..runs.run import train_run
    from ..tasks.registry import config_of
    from ..train import NonFinite, StopRule

    folder = run or Path("runs") / (config.stem if config else "default")
    loaded = config_of(given.table, source=given.source)
    first = rank_of_environment() == 0
    try:
        with ExitStack() as shown:
            listeners = list[Any]()
            if first:
                listeners.append(shown.enter_context(TrainDisplay(stderr(), folder.name)))
                listeners.append(shown.enter_context(TensorBoardLog(folder / "tensorboard")))
            train_run(
                loaded,
                folder,
                listeners=listeners,
                from_step=from_step,
                stop_when=StopRule.of(stop_when),
                say=say,
            )
    except NonFinite as problem:
        if first:
            say(
                f"stopped at {problem}. Every checkpoint is kept; a lower learning rate, a warm-up "
                "or clip_norm may help"
            )
        raise typer.Exit(1) from None
    if first:
        typer.echo(str(folder))


def _say_plan(config: Path | None, settings: list[str], imports: list[str], trust: bool) -> None:
    given = read_config(config, settings, imports, trust=trust)
    from ..runs.machine import plan
    from ..tasks.registry import config_of

    loaded = config_of(given.table, source=given.source)
    for line in plan_lines(plan(loaded), loaded):
        typer.echo(line)
