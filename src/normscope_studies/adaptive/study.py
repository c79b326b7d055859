"""Numbers that move beside numbers that stay: what is hoped of them, what the runs say, and the
page.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import counted, joined
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.claims import claim, judged, listed
from ..engine.decoders import OPTIMIZER
from ..engine.estimates import plain_estimate
from ..engine.judging import Answer, all_hold, bigram_nats, holm, learned
from ..engine.ladders import Ladder, WarmupPair, climb, in_words, machines, sources
from ..engine.page import Claim, Findings, StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Study
from ..optimizers.page import rates
from .config import SCALES, MovingConfig

_Pairs = Mapping[str, WarmupPair]
"""The pairs of both warm-ups, by placement."""
_MEMO = (
    "the memo on stability, future directions: “to combine pre-LN stability with post-LN "
    "performance through adaptive normalization schedules”"
)


def run(config: MovingConfig, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for text that is not there, and for a training that
    fails.
    """
    base = config.base()
    corpus = LANGUAGE_MODEL.open(base)
    ladders = climb(
        dict.fromkeys(config.arms, config.peak_lrs),
        partial(config.cells, base, pieces.folder),
        pieces,
        climbing=config.ladder_seeds,
        seeds=config.seeds,
        best_rates=config.best_rates,
    )
    pairs = {
        name: WarmupPair(
            without=ladders[name, OPTIMIZER, 0],
            warm=ladders[name, OPTIMIZER, config.warmup_updates],
        )
        for name in config.placements
    }
    cells = [cell for ladder in ladders.values() for cell in ladder.cells]
    unigram = LANGUAGE_MODEL.chance_nats(corpus)
    train, valid = (np.asarray(corpus.splits[name].tokens) for name in ("train", "valid"))
    bigram = bigram_nats(train, valid)
    runs = sources(cells)
    return Findings(
        conditions=conditions(config, (unigram, bigram))
        | {"trained by": in_words(runs), "machine": machines(cells)},
        claims=claims(config, pairs, unigram),
        figures=figures(config, pairs),
        tables=[ends(config, pairs)],
        data={
            "unigram_nats": unigram,
            "bigram_nats": bigram,
            "placements": [_data(config, pairs, name) for name in config.placements],
            "runs": runs,
        },
    )


def claims(config: MovingConfig, pairs: _Pairs, unigram_nats: float) -> list[Claim]:
    """Judges what is hoped of numbers that move, and that the one end needs its warm-up here."""
    post = named(config.post).title
    return [
        _below_its_ends(config, pairs, unigram_nats),
        _family(
            f"ends as low as {post} without a warm-up",
            f"Without warm-up a placement that moves ends at most {config.matching_nats:g} nats "
            f"above {post} with it, each at its own best rate.",
            value=f"its last loss without warm-up less that of {post} with it, in nats",
            of={
                name: pairs[name].without.less(pairs[config.post].warm)
                for name in config.ends
                if _one_learned(pairs[name].without, pairs[config.post].warm, unigram_nats)
            },
            every=list(config.ends),
            greatest=config.matching_nats,
        ),
        _family(
            "what moves does without a warm-up",
            "A placement that moves ends without warm-up at most "
            f"{config.needs_nats:g} nats above its runs with it, each at its own best rate.",
            value="the loss without less that with warm-up, in nats",
            of={
                name: pairs[name].gain for name in config.ends if pairs[name].learned(unigram_nats)
            },
            every=list(config.ends),
            greatest=config.needs_nats,
        ),
        _family(
            f"{post} gains from its warm-up",
            f"{post} ends lower with warm-up than without, each at its own best rate.",
            value="the loss without less that with warm-up, in nats",
            of={
                name: pairs[name].gain
                for name in [config.post]
                if pairs[name].learned(unigram_nats)
            },
            every=[config.post],
            least=0.0,
        ),
    ]


def _family(
    name: str,
    statement: str,
    *,
    value: str,
    of: Mapping[str, Estimate],
    every: Sequence[str],
    least: float = -math.inf,
    greatest: float = math.inf,
) -> Claim:
    """A claim of several placements that are judged together by Holm.

    of: by placement, of those that learned. every: all that are asked; the others decide nothing.
    """
    decided = {
        **dict.fromkeys(map(_title, every)),
        **holm({_title(one): (found, least, greatest) for one, found in of.items()}),
    }
    left = [_title(one) for one in every if one not in of]
    told = f"Corrected by Holm over {counted(len(of), 'placement')}"
    if left:
        told += f"; did not learn, so that they decide nothing: {joined(left)}"
    return claim(
        name,
        statement,
        source=_MEMO,
        value=value,
        holds={_title(one): of.get(one) for one in every},
        decided=decided,
        beside=told,
    )


def _below_its_ends(config: MovingConfig, pairs: _Pairs, unigram_nats: float) -> Claim:
    """Each beside both of its ends, all comparisons corrected together."""
    less = {
        (name, end): pairs[name].better.less(pairs[end].better)
        for name, ends in config.ends.items()
        for end in ends
        if _one_learned(pairs[name].better, pairs[end].better, unigram_nats)
    }
    below = holm({key: (found, -math.inf, 0.0) for key, found in less.items()})
    holds: dict[str, Answer] = {}
    for name, ends in config.ends.items():
        holds[_title(name)] = all_hold([below.get((name, end)) for end in ends])
    words = {f"{_title(name)} less {_title(end)}": found for (name, end), found in less.items()}
    return judged(
        name="below its fixed ends",
        statement="A placement that moves ends lower than each of the fixed ones at its ends, each "
        "at the better of two warm-ups and at its own best rate.",
        source=_MEMO,
        found=f"last losses, in nats: {listed(words) or 'none learned'}. Corrected by Holm over "
        f"{counted(len(less), 'comparison')}",
        holds=holds,
    )


def _one_learned(one: Ladder, other: Ladder, unigram_nats: float) -> bool:
    return learned(min(one.mean_nats, other.mean_nats), unigram_nats)


def _title(placement: str) -> str:
    return named(placement).title


def figures(config: MovingConfig, pairs: _Pairs) -> list[StudyFigure]:
    """The loss over the rate: what moves beside its ends, without warm-up and with."""
    made = []
    for name, words in (("without", "without warm-up"), ("warm", "with warm-up")):
        panels = []
        for moving, ends in config.ends.items():
            beside = {_title(one): getattr(pairs[one], name) for one in (moving, *ends)}
            panels.append(rates(_title(moving), beside))
        made.append(
            StudyFigure.of_panels(
                name=f"rates_{name}",
                title=f"The loss over the rate, {words}",
                caption="Each placement that moves beside its fixed ends: mean over the seeds of "
                "the ladder with their range. A run that did not stay finite counts as its loss at "
                "initialisation.",
                panels=panels,
            )
        )
    return made


def ends(config: MovingConfig, pairs: _Pairs) -> StudyTable:
    """Lists where the runs end, the lowest first."""
    post = pairs[config.post].warm
    return table(
        "Mean last loss in nats at the best rate of the ladder (* its first or last), and the "
        "sensitivity to the rate over the ladder; without warm-up and with",
        sorted(config.placements, key=lambda name: pairs[name].better.mean_nats),
        [
            ("placement", _title),
            ("moves", lambda name: "yes" if name in config.ends else "no"),
            ("no warm-up", lambda name: pairs[name].without.mean_nats),
            ("rate", lambda name: pairs[name].without.rate),
            ("sensitivity", lambda name: pairs[name].without.sensitivity.value),
            ("warm-up", lambda name: pairs[name].warm.mean_nats),
            ("rate ", lambda name: pairs[name].warm.rate),
            ("sensitivity ", lambda name: pairs[name].warm.sensitivity.value),
            ("warm-up gains", lambda name: pairs[name].gain),
            (
                f"better of both less {_title(config.post)} with warm-up",
                lambda name: pairs[name].better.less(post),
            ),
        ],
    )


def conditions(config: MovingConfig, baselines: tuple[float, float]) -> dict[str, str]:
    """Says how the runs were made."""
    shared = config.conditions(baselines)
    return {
        **shared,
        "numbers that move": (
            f"from 0 to 1 in a straight line over {config.over_updates} updates, for all alike; "
            "set before the runs"
        ),
        "warm-up": (
            f"none, or {config.warmup_updates} updates; every placement is trained with both, and "
            "the seeds that judge say which is the better, for all alike"
        ),
    }


def _data(config: MovingConfig, pairs: _Pairs, name: str) -> dict[str, Any]:
    pair = pairs[name]
    return {
        "placement": name,
        "title": _title(name),
        "ends": config.ends.get(name, ()),
        "warmup_gain_nats": plain_estimate(pair.gain),
        "less_post_warm_nats": plain_estimate(pair.better.less(pairs[config.post].warm)),
        "less_ends_nats": {
            end: plain_estimate(pair.better.less(pairs[end].better))
            for end in config.ends.get(name, ())
        },
        "without_warmup": pair.without.data(),
        "with_warmup": pair.warm.data(),
    }


STUDY = Study(
    title="Norms that move while a model trains",
    question=(
        "Does a placement whose number moves while it trains end lower than the fixed placements "
        "at its ends, each at its own best rate; and does it reach Post-LN's end without a "
        "warm-up?"
    ),
    help="Do placements that move beat their fixed ends?",
    scales=SCALES,
    run=run,
)
