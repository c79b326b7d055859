"""The loss over the rate, a panel for each placement and optimiser."""

from ...placement import named
from ...report.panels_svg import Panel, Series, panels_svg
from ...report.study.contents import StudyFigure
from .arms import Arm
from .claims import TITLES
from .config import OptimizersConfig
from .verdicts import Pairings


def figures(config: OptimizersConfig, found: Pairings) -> list[StudyFigure]:
    """One an optimiser, a panel a placement."""
    return [
        StudyFigure(
            name=f"rates_{optimizer}",
            title=f"{TITLES[optimizer]}: the loss over the rate",
            caption="Mean over the seeds of the ladder with their range; a run that did not stay finite counts as its "
            "loss at initialisation.",
            svg=panels_svg(
                [_panel(config, placement, optimizer, found) for placement in config.placements],
                title=f"Last loss over the peak rate under {TITLES[optimizer]}",
            ),
            wide=True,
        )
        for optimizer in config.optimizers
    ]


def _panel(config: OptimizersConfig, placement: str, optimizer: str, found: Pairings) -> Panel:
    pairing = found[placement, optimizer]
    series = [_series("no warm-up", 0, pairing.without), _series("warm-up", 1, pairing.warm)]
    return Panel(
        title=named(placement).title,
        xlabel="peak rate",
        ylabel="last validation loss, nats",
        series=series,
        log_x=True,
    )


def _series(label: str, hue: int, arm: Arm) -> Series:
    columns = [[run.final_nats for run in column] for column in zip(*arm.ladder, strict=True)]
    return Series(
        label=label,
        kind="measured",
        hue=hue,
        x=list(arm.peak_lrs),
        y=[sum(column) / len(column) for column in columns],
        low=[min(column) for column in columns],
        high=[max(column) for column in columns],
    )
