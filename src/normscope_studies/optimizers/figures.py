"""The loss over the rate, a panel for each placement and optimiser."""

from normscope.placement import named
from normscope.report.chart import Panel

from ..engine.page import StudyFigure
from ..ladders.showing import series
from .claims import TITLES
from .config import OptimizersConfig
from .verdicts import Pairings


def figures(config: OptimizersConfig, found: Pairings) -> list[StudyFigure]:
    """One an optimiser, a panel a placement."""
    return [
        StudyFigure.of_panels(
            name=f"rates_{optimizer}",
            title=f"{TITLES[optimizer]}: the loss over the rate",
            caption="Mean over the seeds of the ladder with their range; a run that did not stay finite counts as its "
            "loss at initialisation.",
            panels=[_panel(config, placement, optimizer, found) for placement in config.placements],
            told=f"Last loss over the peak rate under {TITLES[optimizer]}",
            wide=True,
        )
        for optimizer in config.optimizers
    ]


def _panel(config: OptimizersConfig, placement: str, optimizer: str, found: Pairings) -> Panel:
    pairing = found[placement, optimizer]
    arms = {"no warm-up": pairing.without, "warm-up": pairing.warm}
    lines = [series(label, hue, arm.ladder, arm.peak_lrs) for hue, (label, arm) in enumerate(arms.items())]
    return Panel(
        title=named(placement).title,
        xlabel="peak rate",
        ylabel="last validation loss, nats",
        series=lines,
        log_x=True,
    )
