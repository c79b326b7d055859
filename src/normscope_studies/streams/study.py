"""Newer residual streams beside older placements: what the sources promise, what the runs say, and the page."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from normscope.compare.manifest import in_words
from normscope.evidence.estimates import plain_estimate
from normscope.evidence.judging import Answer, holm
from normscope.placement import named

from ..engine.claims import claim, post_needs_warmup
from ..engine.figures import endings, rates
from ..engine.ladders import Ladder, end_columns, gains_at_most, trained_by
from ..engine.models import LOSS, training_conditions, trials
from ..engine.page import Claim, StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .measure import BATCHES
from .runs import BASE, MEASURES, POST, PROMISES, SCALES, StreamRuns, StreamsConfig, trained

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


def run(config: StreamsConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    found = [trained(config, trial, pieces) for trial in trials(config)]
    runs = trained_by(pair for one in found for pair in one.pairs.values())
    return Findings(
        conditions=conditions(config, found, runs),
        claims=claims(config, found),
        figures=figures(found),
        tables=tables(found),
        data={"trials": {one.task: _data(one) for one in found}, "runs": runs},
    )


def claims(config: StreamsConfig, found: Sequence[StreamRuns]) -> list[Claim]:
    """One for each promise, one a task for warm-up, and the one placement that is known to need it."""
    edge, made = config.comparable_nats, []
    kept, family = _kept(found, edge)
    for name, promise in PROMISES.items():
        less = {one.words: one.less_base(name) for one in found if name in one.pairs}
        if less:
            title, lower = named(name).title, promise.ends == "lower"
            ends = "lower than" if lower else f"within {edge:g} nats of"
            made.append(
                claim(
                    title,
                    f"{title} ends {ends} Pre-LN of as many parameters, each at its own best rate and warm-up.",
                    source=promise.source,
                    value="its last loss less Pre-LN's, in nats",
                    holds=less,
                    decided={one.words: kept[name, one.task] for one in found if name in one.pairs},
                    beside=f"Corrected by Holm over {family} promises",
                )
            )
    for one in found:
        new = {name: one.pairs[name] for name in one.placements if name in config.placements}
        at_most = gains_at_most(new, edge, one.unigram_nats)
        made.append(
            claim(
                f"the newer streams do without warm-up, {one.words}",
                f"Without warm-up, at its own best rate, a newer residual stream ends at most {edge:g} nats above its "
                "runs with warm-up.",
                source="not in the sources; asked of all",
                value="the loss without less that with warm-up, in nats",
                holds={named(name).title: pair.gain for name, pair in new.items()},
                decided={named(name).title: answer for name, answer in at_most.items()},
                beside=f"Corrected by Holm over {len(new)} placements",
            )
        )
    return [*made, post_needs_warmup({one.words: one.pairs[POST].gain for one in found})]


def _kept(found: Sequence[StreamRuns], edge: float) -> tuple[dict[tuple[str, str], Answer], int]:
    """By placement and task, whether what its source promises is so, all judged together; and how many there are."""
    family = {}
    for one in found:
        for name, promise in PROMISES.items():
            if name in one.pairs and any(one.pairs[each].learned(one.unigram_nats) for each in (name, BASE)):
                low, high = (-math.inf, 0.0) if promise.ends == "lower" else (-edge, edge)
                family[name, one.task] = (one.less_base(name), low, high)
    asked = [(name, one.task) for one in found for name in PROMISES if name in one.pairs]
    return {**dict.fromkeys(asked), **holm(family)}, len(family)


def figures(found: Sequence[StreamRuns]) -> list[StudyFigure]:
    """Where every placement ends, and how its loss depends on the rate."""
    made = []
    for one in found:
        name, words = one.task.replace("-", "_"), one.words.capitalize()
        made.append(_endings(one))
        groups = {words: [name for name in names if name in one.pairs] for words, names in _GROUPS.items()}
        dotted = {named(BASE).title: (-1, one.pairs[BASE].without)}
        panels = [
            rates(words, {named(name).title: one.pairs[name].without for name in names}, dotted=dotted)
            for words, names in groups.items()
            if names
        ]
        if panels:
            made.append(
                StudyFigure.of_panels(
                    name=f"rates_{name}",
                    title=f"{words}: the loss over the rate, without warm-up",
                    caption="Mean over the seeds of the ladder with their range; a run that did not stay finite counts "
                    "as its loss at initialisation. Pre-LN is dotted in every panel.",
                    panels=panels,
                    told=f"Last loss over the peak rate without warm-up, {one.words}",
                    wide=True,
                )
            )
    return made


def _endings(one: StreamRuns) -> StudyFigure:
    return endings(
        one.task,
        {named(name).title: one.pairs[name] for name in one.placements},
        {"Pre-LN, mean of its better warm-up": one.pairs[BASE].better.mean_nats},
        told="Last validation loss of every placement",
    )


def tables(found: Sequence[StreamRuns]) -> list[StudyTable]:
    """Two a task: where the runs end, and what they look like inside."""
    made = []
    for one in found:
        words = one.words.capitalize()

        def inside(name: str, one: StreamRuns = one) -> Callable[[str], float]:
            return lambda placement: one.mean_inside(placement, one.pairs[placement].better, name)

        def size(index: int, one: StreamRuns = one) -> Callable[[str], int]:
            return lambda placement: one.sizes[placement][index]

        title = ("placement", lambda name: named(name).title)
        made.append(
            table(
                f"{words}: mean last loss in nats at the best rate of the ladder (* its first or last), and "
                "sensitivity over the ladder, without warm-up and with; the better of both less Pre-LN's",
                one.placements,
                [
                    title,
                    *end_columns(one.ladders),
                    ("less Pre-LN's", one.less_base),
                    ("parameters", size(1)),
                    ("feed-forward", size(0)),
                ],
            )
        )
        made.append(
            table(
                f"{words}: the decoder at the better warm-up, means over seeds. What the last third of its blocks is "
                "worth in nats of loss, how far it turns the output (1 - cos), the correlation of the output's tokens; "
                "and the largest over the smallest gradient norm of its blocks before training",
                one.placements,
                [
                    title,
                    ("last third is worth", inside("worth_nats")),
                    ("and turns", inside("turned")),
                    ("cosine similarity of tokens", inside("correlation")),
                    ("gradient spread", inside("gradient_spread")),
                ],
            )
        )
    return made


def conditions(config: StreamsConfig, found: Sequence[StreamRuns], runs: Mapping[str, Any]) -> dict[str, str]:
    """How the runs were made."""
    return {
        **LOSS,
        "models": f"width {config.width}, {config.heads} heads, no dropout; a language model is a decoder of "
        f"{config.blocks} blocks, translation has {config.stack_blocks}+{config.stack_blocks}. The feed-forward of "
        f"Pre-LN is {config.ffn_width} wide; the others have as many parameters in all, and less of it where they have "
        "some of their own",
        "text": f"{config.batch_sequences} sequences of {config.sequence_length} tokens; batches of at most "
        f"{config.max_tokens} tokens a side to translate; unigram baselines "
        + ", ".join(f"{one.unigram_nats:.3f} ({one.words})" for one in found),
        "inside": f"of the last checkpoint, over {BATCHES} batches of training text in an order of their own",
        **training_conditions(config),
        "trained by": in_words(dict(runs)),
    }


def _data(one: StreamRuns) -> dict[str, Any]:
    def arm(placement: str, ladder: Ladder) -> dict[str, Any]:
        return {
            **ladder.data(),
            "mean_seen": {name: one.mean_inside(placement, ladder, name) for name in MEASURES},
            "seen": [dict(seed) for seed in one.inside[placement, ladder.warmup_updates]],
        }

    return {
        "unigram_nats": one.unigram_nats,
        "placements": {
            name: {
                "title": named(name).title,
                "parameters": one.sizes[name][1],
                "ffn_width": one.sizes[name][0],
                "less_pre_ln_nats": plain_estimate(one.less_base(name)),
                "warmup_gain_nats": plain_estimate(one.pairs[name].gain),
                "without_warmup": arm(name, one.pairs[name].without),
                "with_warmup": arm(name, one.pairs[name].warm),
            }
            for name in one.placements
        },
    }


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
