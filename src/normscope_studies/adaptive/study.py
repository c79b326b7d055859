"""Numbers that move beside numbers that stay: what is hoped of them, what the runs say, and the page."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from normscope.compare.manifest import in_words
from normscope.evidence.estimates import plain_estimate, with_interval
from normscope.evidence.judging import all_hold, holm
from normscope.placement import named
from normscope.report.chart import Panel

from ..engine.claims import claim, judged, post_needs_warmup
from ..engine.figures import curves, endings, line, rates
from ..engine.ladders import Ladder, end_columns, trained_by
from ..engine.models import LOSS, training_conditions
from ..engine.page import Claim, StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .runs import (
    POST,
    PRE,
    SCALES,
    AdaptiveRuns,
    AdaptiveStudyConfig,
    Drive,
    Motion,
    PlacementDrive,
    motions,
    title,
    trained,
)

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
    return endings(
        one.task,
        {title(*kind): one.pairs[kind] for kind in one.kinds},
        {"Pre-LN, mean": one.pre.mean_nats, "Post-LN with warm-up, mean": one.post.mean_nats},
        told="Last validation loss of every arm",
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
            *end_columns(lambda kind: one.pairs[kind].ladders),
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


_ASKED = "not in a source; asked of all"
_CORRECTED = "Answers are corrected by Holm over all settings"


def run(config: AdaptiveStudyConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    found = [trained(config, task, pieces) for task in config.tasks]
    runs = {
        f"{one.task}/{drive}/{name}": source
        for one in found
        for (_, drive), pair in one.pairs.items()
        for name, source in trained_by([pair]).items()
    }
    return Findings(
        conditions=conditions(config, found, runs),
        claims=claims(config, found),
        figures=figures(config, found),
        tables=tables(config, found),
        data={"trials": {one.task: _data(one) for one in found}, "runs": runs},
    )


def claims(config: AdaptiveStudyConfig, found: Sequence[AdaptiveRuns]) -> list[Claim]:
    """What is asked of every number that moves, then of the controller, and the one placement that needs a warm-up."""
    moved = {one.named(kind): (one, kind) for one in found for kind in one.moved}
    made = [
        _below_both(found),
        claim(
            "below the best fixed placement",
            "A placement whose number moves ends below the best placement whose numbers stay.",
            source=_ASKED,
            value="its last loss less that of the best fixed, in nats",
            holds={words: one.above(kind, one.fixed) for words, (one, kind) in moved.items()},
            decided=holm({words: (one.above(kind, one.fixed), -math.inf, 0.0) for words, (one, kind) in moved.items()}),
            beside="The best fixed: " + "; ".join(one.named(one.best_fixed) for one in found) + f". {_CORRECTED}",
        ),
        claim(
            "without warm-up",
            f"A placement whose number moves ends without warm-up at most {config.needs_nats:g} nats above its runs "
            "with it, each at its own best rate.",
            source=_ASKED,
            value="the loss without less that with warm-up, in nats",
            holds={words: one.pairs[kind].gain for words, (one, kind) in moved.items()},
            decided=holm(
                {words: (one.pairs[kind].gain, -math.inf, config.needs_nats) for words, (one, kind) in moved.items()}
            ),
            beside=_CORRECTED,
        ),
    ]
    if both := [name for name in config.controlled if name in config.scheduled]:
        less = {
            one.named((name, "fixed")): one.above((name, "controller"), one.pairs[name, "schedule"].better)
            for one in found
            for name in both
        }
        made.append(
            claim(
                "the controller beside the schedule",
                "A number that moves as fast as the measured change permits ends lower than one that moves with every "
                "update.",
                source=_ASKED,
                value="the last loss with the controller less that with the schedule, in nats",
                holds=less,
                decided=holm({words: (one, -math.inf, 0.0) for words, one in less.items()}),
                beside=_CORRECTED,
            )
        )
    return [*made, post_needs_warmup({one.words: one.pairs[POST, "fixed"].gain for one in found})]


def _below_both(found: Sequence[AdaptiveRuns]) -> Claim:
    lowest = [
        f"{one.named(kind)}: {with_interval(one.above(kind, one.pre))} beside Pre-LN, "
        f"{with_interval(one.above(kind, one.post))} beside Post-LN with warm-up"
        for one in found
        for kind in [next(kind for kind in one.kinds if kind in one.moved)]
    ]
    below = holm(
        {
            (one.named(kind), end): (one.above(kind, getattr(one, end)), -math.inf, 0.0)
            for one in found
            for kind in one.moved
            for end in ("pre", "post")
        }
    )
    return judged(
        name="below both ends",
        statement="A placement whose number moves ends below Pre-LN and below Post-LN with warm-up, each at its own "
        "best rate, it and Pre-LN at the better of two warm-ups.",
        source=_ASKED,
        found=f"its last loss less theirs, in nats, of the lowest of each task: {'; '.join(lowest)}. {_CORRECTED}",
        holds={
            one.named(kind): all_hold([below[one.named(kind), end] for end in ("pre", "post")])
            for one in found
            for kind in one.moved
        },
    )


def conditions(config: AdaptiveStudyConfig, found: Sequence[AdaptiveRuns], runs: Mapping[str, Any]) -> dict[str, str]:
    """How the runs were made."""
    return {
        **LOSS,
        "models": f"width {config.width}, feed-forward {config.ffn_width}, {config.heads} heads, no dropout; a "
        f"language model is a decoder of {config.blocks} blocks, translation has "
        f"{config.stack_blocks}+{config.stack_blocks}. Placements have what parameters they have: norms and mixing "
        "weights differ, matrices do not",
        "text": f"{config.batch_sequences} sequences of {config.sequence_length} tokens of {config.text}; batches of "
        f"at most {config.max_tokens} tokens a side of {config.pairs} to translate; unigram baselines "
        + ", ".join(f"{one.unigram_nats:.3f} ({one.words})" for one in found),
        "numbers that move": f"from 0 to 1: by schedule in a straight line over {config.over_updates} updates; by "
        f"controller over {config.controlled_over_updates} updates that count, which are those after a measured change "
        f"of the output of at most {config.largest_change:g}, measured every {config.measure_every} updates. Both were "
        "set before the runs, for all placements alike",
        **training_conditions(config),
        "trained by": in_words(dict(runs)),
    }


def _data(one: AdaptiveRuns) -> dict[str, Any]:
    return {
        "unigram_nats": one.unigram_nats,
        "best_fixed": one.best_fixed[0],
        "arms": [
            {
                "placement": kind[0],
                "drive": kind[1],
                "title": title(*kind),
                "warmup_gain_nats": plain_estimate(one.pairs[kind].gain),
                "less_pre_ln_nats": plain_estimate(one.above(kind, one.pre)),
                "less_post_ln_nats": plain_estimate(one.above(kind, one.post)),
                "less_best_fixed_nats": plain_estimate(one.above(kind, one.fixed)),
                "without_warmup": _arm(kind, one.pairs[kind].without),
                "with_warmup": _arm(kind, one.pairs[kind].warm),
            }
            for kind in one.kinds
        ],
    }


def _arm(kind: PlacementDrive, ladder: Ladder) -> dict[str, Any]:
    made = {"peak_lrs": list(ladder.peak_lrs), **ladder.data(), "last_finite": [run.finite for run in ladder.at_best]}
    if kind[1] == "controller":
        made["courses"] = [
            {
                "median_change": one.median_change,
                "half_way_update": one.first_at(0.5),
                "end_update": one.first_at(1.0),
                "last_value": one.end,
            }
            for one in motions(ladder.at_best)
        ]
    return made


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
