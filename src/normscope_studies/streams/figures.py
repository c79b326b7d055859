"""Where every placement ends, and how its loss depends on the rate."""

from collections.abc import Sequence
from dataclasses import replace

from normscope.report.chart import Panel, Series

from ..engine.page import StudyFigure
from ..ladders.showing import endings_svg, series
from .config import StreamsConfig
from .runs import Arm
from .sources import BASE
from .standing import Standing, title

_GROUPS = {
    "several streams": (
        "mhc",
        "hyper-connections",
        "hyper-connections-static",
        "independent-hyper-connections",
        "gated-multi-stream",
    ),
    "two streams, or all of the past": (
        *("siamese-norm", "siamese-norm-hybrid", "attn-res-inkling"),
        *("denseformer", "x0-residual", "x0-residual-modded"),
    ),
    "branches scaled by depth": ("depth-scaled", "completep", "depth-mup", "minicpm", "granite", "layer-scale"),
    "gates, scaled skips, parallel blocks": ("variance-gate", "gpas", "zaya", "doge", "parallel", "normformer"),
}


def figures(config: StreamsConfig, found: Sequence[Standing]) -> list[StudyFigure]:
    made = []
    for standing in found:
        made.append(
            StudyFigure(
                name=f"endings_{standing.task.replace('-', '_')}",
                title=f"{standing.words.capitalize()}: where the runs end",
                caption="One point a seed, at the best rate of the ladder; filled with warm-up, hollow without.",
                svg=_endings(standing),
                wide=True,
            )
        )
        if panels := _rates(config, standing):
            made.append(
                StudyFigure.of_panels(
                    name=f"rates_{standing.task.replace('-', '_')}",
                    title=f"{standing.words.capitalize()}: the loss over the rate, without warm-up",
                    caption="Mean over the seeds of the ladder with their range; a run that did not stay finite "
                    "counts as its loss at initialisation. Pre-LN is dotted in every panel.",
                    panels=panels,
                    told=f"Last loss over the peak rate without warm-up, {standing.words}",
                    wide=True,
                )
            )
    return made


def _endings(standing: Standing) -> str:
    names = standing.placements[::-1]
    best, worst = names[-1], names[0]
    base = standing.better(BASE).mean_nats
    return endings_svg(
        {title(name): (standing.without(name), standing.warm(name)) for name in names},
        {"Pre-LN, mean of its better warm-up": base},
        title=f"Last validation loss of every placement, {standing.words}",
        desc=f"From {title(best)} at {standing.better(best).mean_nats:.3f} nats to {title(worst)} at "
        f"{standing.better(worst).mean_nats:.3f}; Pre-LN at {base:.3f}.",
    )


def _rates(config: StreamsConfig, standing: Standing) -> list[Panel]:
    base = standing.without(BASE)
    panels = []
    for words, names in _GROUPS.items():
        present = [name for name in names if name in standing.placements]
        if present:
            lines = [_line(title(name), hue, standing.without(name)) for hue, name in enumerate(present)]
            lines.append(replace(_line(title(BASE), -1, base), kind="claimed", low=(), high=()))
            panels.append(
                Panel(title=words, xlabel="peak rate", ylabel="last validation loss, nats", series=lines, log_x=True)
            )
    return panels


def _line(label: str, hue: int, arm: Arm) -> Series:
    return series(label, hue, arm.ladder, arm.peak_lrs)
