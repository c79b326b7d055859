"""The rates of every ladder drawn, and who needs a warm-up as a table."""

from collections.abc import Mapping
from typing import Any

from normscope.placement import named
from normscope.report.chart import Panel

from ..engine.estimates import with_interval
from ..engine.ladders import Ladder
from ..engine.page import StudyFigure, StudyTable, ranged
from .claims import TITLES, OptimizerPairs, WarmupNeed, setting_name
from .config import OptimizersConfig


def _ladders(
    config: OptimizersConfig, pairs: OptimizerPairs, placement: str, optimizer: str
) -> list[Ladder]:
    """Returns the sweeps without warm-up, with the short one, and with the long one."""
    short, long = (pairs[placement, optimizer, warmup] for warmup in config.warmups[1:])
    return [short.without, short.warm, long.warm]


def figures(config: OptimizersConfig, pairs: OptimizerPairs) -> list[StudyFigure]:
    """One an optimiser, a panel a placement."""
    made = []
    for optimizer in config.optimizers:
        panels = []
        for placement in config.placements:
            ladders = _ladders(config, pairs, placement, optimizer)
            by_words = dict(zip(_words(config), ladders, strict=True))
            panels.append(rates(named(placement).title, by_words))
        made.append(
            StudyFigure.of_panels(
                name=f"rates_{optimizer}",
                title=f"{TITLES[optimizer]}: the loss over the rate",
                caption="Mean over the seeds of the ladder with their range; a run that did not "
                "stay finite counts as its loss at initialisation.",
                panels=panels,
                told=f"Last loss over the peak rate under {TITLES[optimizer]}",
            )
        )
    return made


def rates(title: str, ladders: Mapping[str, Ladder]) -> Panel:
    """The last loss over the rate of every ladder: mean over its seeds, with their range."""
    series = [
        ranged(label, hue, one.peak_lrs, one.nats)
        for hue, (label, one) in enumerate(ladders.items())
    ]
    return Panel(
        title=title,
        xlabel="peak rate",
        ylabel="last validation loss, nats",
        series=series,
        log_x=True,
    )


def _words(config: OptimizersConfig) -> tuple[str, ...]:
    return "no warm-up", *(f"warm-up of {warmup:,}" for warmup in config.warmups[1:])


def tables(
    config: OptimizersConfig,
    pairs: OptimizerPairs,
    needs: Mapping[tuple[str, str, int], WarmupNeed],
) -> list[StudyTable]:
    """The one that a practitioner pins to the wall: who needs a warm-up; then where the runs of
    each optimiser end.
    """
    ends = [_ends(config, pairs, optimizer) for optimizer in config.optimizers]
    return [_wall(config, pairs, needs), *ends]


def _wall(
    config: OptimizersConfig,
    pairs: OptimizerPairs,
    needs: Mapping[tuple[str, str, int], WarmupNeed],
) -> StudyTable:
    """Returns the table of needs: a row a placement, a column an optimiser and a warm-up."""
    columns = [
        (optimizer, warmup) for optimizer in config.optimizers for warmup in config.warmups[1:]
    ]

    def cell(placement: str, optimizer: str, warmup: int) -> str:
        key = placement, optimizer, warmup
        return f"{needs[key]}: {with_interval(pairs[key].gain, 2)}"

    rows = []
    for placement in config.placements:
        cells = [cell(placement, optimizer, warmup) for optimizer, warmup in columns]
        rows.append((named(placement).title, *cells))
    return StudyTable(
        title="Who needs a warm-up: verdict, and by how many nats the runs without it end above "
        "those with it, each at its own best rate",
        columns=("placement", *(setting_name(config, *column) for column in columns)),
        rows=rows,
    )


def _ends(config: OptimizersConfig, pairs: OptimizerPairs, optimizer: str) -> StudyTable:
    """Returns the table of an optimiser's last losses: a row a placement, the lowest first, four
    columns a warm-up.
    """
    columns = ["placement"]
    for words in _words(config):
        columns += [f"loss, {words}", "rate", "sensitivity", "lost"]

    def lowest(placement: str) -> float:
        return min(one.mean_nats for one in _ladders(config, pairs, placement, optimizer))

    rows = []
    for placement in sorted(config.placements, key=lowest):
        row: list[Any] = [named(placement).title]
        for one in _ladders(config, pairs, placement, optimizer):
            row += [one.mean_nats, one.rate, one.sensitivity.value, one.lost]
        rows.append(row)
    return StudyTable(
        title=f"{TITLES[optimizer]}: mean last loss in nats at the best rate (* the ladder's first "
        "or last), the sensitivity over the ladder, and how many of its runs did not stay finite; "
        "by warm-up",
        columns=columns,
        rows=rows,
    )
