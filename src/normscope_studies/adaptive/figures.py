"""Where everything ends, how the loss depends on the rate, and how a controller moved its number."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from normscope.report.chart import Panel, Series

from ..engine.page import StudyFigure
from ..ladders.showing import endings_svg, series
from .config import AdaptiveStudyConfig
from .families import POST, PRE, Drive, title
from .moving import courses
from .standing import Standing

_DRIVES: Mapping[Drive, str] = {"schedule": "scheduled", "controller": "controlled"}


def figures(config: AdaptiveStudyConfig, found: Sequence[Standing]) -> list[StudyFigure]:
    """Two a task, and one of the controllers."""
    made = []
    for standing in found:
        name = standing.task.replace("-", "_")
        made.append(
            StudyFigure(
                name=f"endings_{name}",
                title=f"{standing.words.capitalize()}: where the runs end",
                caption="One point a seed, at the best rate of the ladder; filled with warm-up, hollow without.",
                svg=_endings(standing),
                wide=True,
            )
        )
        made.append(
            StudyFigure.of_panels(
                name=f"rates_{name}",
                title=f"{standing.words.capitalize()}: the loss over the rate",
                caption="Mean over the seeds of the ladder with their range; a run that did not stay finite counts as "
                "its loss at initialisation.",
                panels=_rates(standing),
                told=f"Last loss over the peak rate, {standing.words}",
                wide=True,
            )
        )
    if config.controlled:
        made.append(
            StudyFigure.of_panels(
                name="controlled",
                title="How the controllers moved their numbers",
                caption="The number over the updates at the best rate, mean over seeds with their range; every panel "
                "has the schedule that the others follow.",
                panels=[panel for standing in found for panel in _controlled(config, standing)],
                told="The controlled numbers over the updates",
                wide=True,
            )
        )
    return made


def _endings(standing: Standing) -> str:
    kinds = standing.kinds[::-1]
    best, worst = kinds[-1], kinds[0]
    return endings_svg(
        {title(*kind): (standing.without(kind), standing.warm(kind)) for kind in kinds},
        {
            "Pre-LN, mean": standing.pre.mean_nats,
            "Post-LN with warm-up, mean": standing.post.mean_nats,
        },
        title=f"Last validation loss of every arm, {standing.words}",
        desc=f"From {title(*best)} at {standing.better(best).mean_nats:.3f} nats to {title(*worst)} at "
        f"{standing.better(worst).mean_nats:.3f}; Pre-LN at {standing.pre.mean_nats:.3f}, Post-LN with warm-up at "
        f"{standing.post.mean_nats:.3f}.",
    )


def _rates(standing: Standing) -> list[Panel]:
    """Without warm-up and with; what is moved by a controller, what by a schedule, each beside both ends."""
    panels = []
    for words, arm_of in (("no warm-up", standing.without), ("warm-up", standing.warm)):
        for drive, moved in _DRIVES.items():
            names = [name for name, by in standing.moved if by == drive]
            if not names:
                continue
            moving = [(name, arm_of((name, drive))) for name in names]
            lines = [
                series(title(name, "fixed"), _hue(standing.config, name), arm.ladder, arm.peak_lrs)
                for name, arm in moving
            ]
            for hue, name in ((0, POST), (-1, PRE)):
                arm = arm_of((name, "fixed"))
                line = series(title(name, "fixed"), hue, arm.ladder, arm.peak_lrs)
                lines.append(replace(line, kind="claimed", low=(), high=()))
            panels.append(
                Panel(
                    title=f"{moved}, {words}",
                    xlabel="peak rate",
                    ylabel="last validation loss, nats",
                    series=lines,
                    log_x=True,
                )
            )
    return panels


def _hue(config: AdaptiveStudyConfig, placement: str) -> int:
    """One for each placement, whatever moves its number; the first is Post-LN's."""
    return 1 + list(dict.fromkeys((*config.scheduled, *config.controlled))).index(placement)


def _controlled(config: AdaptiveStudyConfig, standing: Standing) -> list[Panel]:
    panels = []
    updates = list(range(1, config.updates + 1))
    line = [min(1.0, update / config.over_updates) for update in updates]
    for words, arm_of in (("no warm-up", standing.without), ("warm-up", standing.warm)):
        lines = [Series(label="the schedule", kind="claimed", hue=-1, x=updates, y=line)]
        for name in config.controlled:
            seen = courses(arm_of((name, "controller")).best)
            columns = list(zip(*(one.values for one in seen), strict=True))
            lines.append(
                Series(
                    label=title(name, "fixed"),
                    kind="measured",
                    hue=_hue(config, name),
                    x=updates[: len(columns)],
                    y=[sum(column) / len(column) for column in columns],
                    low=[min(column) for column in columns],
                    high=[max(column) for column in columns],
                )
            )
        panels.append(
            Panel(
                title=f"{standing.words}, {words}",
                xlabel="update",
                ylabel="the number",
                series=lines,
                y_range=(-0.03, 1.03),
            )
        )
    return panels
