"""Where everything ends, how the loss depends on the rate, and how the controllers moved their numbers."""

from collections.abc import Mapping, Sequence

from normscope.placement import named
from normscope.report.chart import Panel

from ..engine.figures import curves, endings, line, rates
from ..engine.ladders import Ladder, end_columns
from ..engine.page import StudyFigure, StudyTable, table
from .runs import POST, PRE, AdaptiveRuns, AdaptiveStudyConfig, Drive, Motion, motions, title

_DRIVES: Mapping[Drive, str] = {"schedule": "scheduled", "controller": "controlled"}


def figures(config: AdaptiveStudyConfig, found: Sequence[AdaptiveRuns]) -> list[StudyFigure]:
    """Two a task, and one of the controllers."""
    made = []
    for one in found:
        name, words = one.task.replace("-", "_"), one.words.capitalize()
        made.append(_endings(one))
        made.append(
            StudyFigure.of_panels(
                name=f"rates_{name}",
                title=f"{words}: the loss over the rate",
                caption="Mean over the seeds of the ladder with their range; a run that did not stay finite counts as "
                "its loss at initialisation.",
                panels=_rates(config, one),
                told=f"Last loss over the peak rate, {one.words}",
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
                panels=[panel for one in found for panel in _controlled(config, one)],
                told="The controlled numbers over the updates",
                wide=True,
            )
        )
    return made


def _endings(one: AdaptiveRuns) -> StudyFigure:
    kinds = one.kinds[::-1]
    best, worst = kinds[-1], kinds[0]
    return endings(
        one.task,
        {title(*kind): one.pairs[kind] for kind in kinds},
        {"Pre-LN, mean": one.pre.mean_nats, "Post-LN with warm-up, mean": one.post.mean_nats},
        told="Last validation loss of every arm",
        desc=f"From {title(*best)} at {one.pairs[best].better.mean_nats:.3f} nats to {title(*worst)} at "
        f"{one.pairs[worst].better.mean_nats:.3f}; Pre-LN at {one.pre.mean_nats:.3f}, Post-LN with warm-up at "
        f"{one.post.mean_nats:.3f}.",
    )


def _hues(config: AdaptiveStudyConfig) -> dict[str, int]:
    """One for each placement, whatever moves its number; the first is Post-LN's."""
    names = dict.fromkeys((*config.scheduled, *config.controlled))
    return {named(name).title: hue for hue, name in enumerate(names, 1)}


def _ladders(one: AdaptiveRuns, warm: bool, drive: Drive) -> dict[str, Ladder]:
    """The runs of every placement that is moved so, by its title."""
    pairs = {named(name).title: pair for (name, by), pair in one.pairs.items() if by == drive}
    return {words: pair.warm if warm else pair.without for words, pair in pairs.items()}


def _rates(config: AdaptiveStudyConfig, one: AdaptiveRuns) -> list[Panel]:
    """Without warm-up and with; what is moved by a controller, what by a schedule, each beside both ends."""
    panels = []
    for words, warm in (("no warm-up", False), ("warm-up", True)):
        fixed = _ladders(one, warm, "fixed")
        ends = {words: (hue, fixed[words]) for hue, words in ((0, named(POST).title), (-1, named(PRE).title))}
        panels += [
            rates(f"{moved}, {words}", ladders, hues=_hues(config), dotted=ends)
            for drive, moved in _DRIVES.items()
            if (ladders := _ladders(one, warm, drive))
        ]
    return panels


def _controlled(config: AdaptiveStudyConfig, one: AdaptiveRuns) -> list[Panel]:
    updates = list(range(1, config.updates + 1))
    schedule = line("the schedule", "claimed", -1, updates, [min(1.0, each / config.over_updates) for each in updates])
    return [
        curves(
            f"{one.words}, {words}",
            {
                label: [motion.values for motion in motions(ladder.at_best)]
                for label, ladder in _ladders(one, warm, "controller").items()
            },
            x=updates,
            xlabel="update",
            ylabel="the number",
            hues=_hues(config),
            beside=[schedule],
            y_range=(-0.03, 1.03),
        )
        for words, warm in (("no warm-up", False), ("warm-up", True))
    ]


def tables(config: AdaptiveStudyConfig, found: Sequence[AdaptiveRuns]) -> list[StudyTable]:
    """Where the runs end, one a task, and how the controllers moved."""
    made = [_ends(one) for one in found]
    return [*made, _controllers(config, found)] if config.controlled else made


def _ends(one: AdaptiveRuns) -> StudyTable:
    return table(
        f"{one.words.capitalize()}: mean last loss in nats at the best rate of the ladder (* its first or last), and "
        "sensitivity over the ladder, without warm-up and with; what warm-up is worth; and the better of both less "
        f"Pre-LN's, less Post-LN's with warm-up, and less the best fixed placement's ({title(*one.best_fixed)})",
        one.kinds,
        [
            ("placement", lambda kind: title(*kind)),
            *end_columns(one.pairs.__getitem__),
            ("warm-up gains", lambda kind: one.pairs[kind].gain),
            ("less Pre-LN's", lambda kind: one.above(kind, one.pre)),
            ("less Post-LN's", lambda kind: one.above(kind, one.post)),
            ("less the best fixed", lambda kind: one.above(kind, one.fixed)),
        ],
    )


def _controllers(config: AdaptiveStudyConfig, found: Sequence[AdaptiveRuns]) -> StudyTable:
    rows = [
        (f"{named(name).title}, {one.words}, {words}", ladder.best_lr, motions(ladder.at_best))
        for one in found
        for name in config.controlled
        for pair in [one.pairs[name, "controller"]]
        for words, ladder in (("no warm-up", pair.without), ("warm-up", pair.warm))
    ]
    return table(
        "The controllers at the best rate: the median change of the output by an update, means over seeds; the first "
        "update at which the number is half-way and at its end, from the fastest seed to the slowest; and where it "
        "stands at the end",
        rows,
        [
            ("placement", lambda row: row[0]),
            ("rate", lambda row: row[1]),
            ("median change", lambda row: _mean([one.median_change for one in row[2]])),
            ("half-way", lambda row: _reached(row[2], 0.5)),
            ("at its end", lambda row: _reached(row[2], 1.0)),
            ("last value", lambda row: _mean([one.end for one in row[2]])),
        ],
    )


def _reached(seen: Sequence[Motion], value: float) -> str:
    at = [one.first_at(value) for one in seen]
    updates = [update for update in at if update is not None]
    if not updates:
        return "never"
    span = f"{min(updates)}" if min(updates) == max(updates) else f"{min(updates)} to {max(updates)}"
    return span if len(updates) == len(at) else f"{span}, {len(at) - len(updates)} never"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
