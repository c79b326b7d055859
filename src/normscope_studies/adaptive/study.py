"""Numbers that move beside numbers that stay: what is hoped of them, what the runs say, and the page."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from normscope.compare.manifest import in_words, sources
from normscope.evidence.estimates import plain_estimate, with_interval
from normscope.evidence.judging import all_hold, holm

from ..engine.claims import claim, judged
from ..engine.ladders import Ladder
from ..engine.models import LOSS, training_conditions
from ..engine.page import Claim
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .page import figures, tables
from .runs import POST, SCALES, AdaptiveRuns, AdaptiveStudyConfig, PlacementDrive, motions, title, trained

_ASKED = "not in a source; asked of all"
_CORRECTED = "Answers are corrected by Holm over all settings"


def run(config: AdaptiveStudyConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    found = [trained(config, task, pieces) for task in config.tasks]
    runs = {
        f"{one.task}/{drive}/{name}": source
        for one in found
        for (_, drive), pair in one.pairs.items()
        for name, source in sources(pair.cells).items()
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
    made.append(
        claim(
            "Post-LN needs its warm-up",
            "Post-LN without warm-up ends higher than with it, each at its own best rate.",
            source="Xiong et al. 2020, section 3.2",
            value="the loss without less that with warm-up, in nats",
            holds={one.words: one.pairs[POST, "fixed"].gain for one in found},
            least=0.0,
        )
    )
    return made


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
