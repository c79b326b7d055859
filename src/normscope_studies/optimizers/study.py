"""Who needs a warm-up under which optimiser: verdicts, claims and the page."""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from normscope.placement import named
from normscope.report.chart import Panel
from normscope.report.words import counted, joined, percentage
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.claims import claim
from ..engine.estimates import plain_estimate, with_interval
from ..engine.judging import LEARNED_NATS, bigram_nats, holm, learned
from ..engine.ladders import Ladder, WarmupPair, climb, gains_at_most, in_words, machines, sources
from ..engine.page import Claim, Findings, StudyFigure, StudyTable, ranged, table
from ..engine.pieces import Pieces
from ..engine.study import Study
from .config import SCALES, OptimizersConfig, base_config, cells_of

_OptimizerPairs = Mapping[tuple[str, str, int], WarmupPair]
"""By placement, optimiser and warm-up."""
TITLES = {"adamw": "AdamW", "muon": "Muon", "lion": "Lion", "sgd": "SGD with momentum"}
_SAID = (
    ("post-ln", True, "Xiong et al. 2020, section 3.2, of Adam and SGD"),
    ("pre-ln", False, "Xiong et al. 2020, section 4.2, of Adam and SGD"),
    (
        "deepnorm",
        False,
        "Wang et al. 2022, arXiv:2203.00555, which trains with warm-up and promises stability",
    ),
    ("rezero", False, "Bachlechner et al. 2020, arXiv:2003.04887, section 5: without warm-up"),
)


def run(config: OptimizersConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    base = base_config(config)
    corpus = LANGUAGE_MODEL.open(base)
    parameters = sum(p.numel() for p in LANGUAGE_MODEL.build(base, corpus.tokeniser).parameters())
    arms = product(config.placements, config.optimizers, config.warmups)
    ladders = climb(
        {arm: config.ladder(arm[1]) for arm in arms},
        partial(cells_of, config, pieces.folder),
        pieces,
        climbing=config.ladder_seeds,
        seeds=config.seeds,
        best_rates=config.best_rates,
    )
    pairs = {
        (placement, optimizer, warmup): WarmupPair(
            without=ladders[placement, optimizer, 0], warm=ladder
        )
        for (placement, optimizer, warmup), ladder in ladders.items()
        if warmup
    }
    runs = sources([cell for ladder in ladders.values() for cell in ladder.cells])
    unigram_nats = LANGUAGE_MODEL.chance_nats(corpus)
    train, valid = (np.asarray(corpus.splits[name].tokens) for name in ("train", "valid"))
    bigram = bigram_nats(train, valid)
    needs = all_needs(pairs, config.needs_nats, unigram_nats)
    machine = machines(cell for ladder in ladders.values() for cell in ladder.cells)
    return Findings(
        conditions=conditions(config, (unigram_nats, bigram), parameters, runs)
        | {"machine": machine},
        claims=claims(config, pairs, unigram_nats),
        figures=figures(config, pairs),
        tables=tables(config, pairs, needs),
        data={
            "unigram_nats": unigram_nats,
            "bigram_nats": bigram,
            "pairings": [
                {
                    "placement": placement,
                    "optimizer": optimizer,
                    "verdict": str(needs[placement, optimizer, warmup]),
                    "gain_nats": plain_estimate(pair.gain),
                    "without_warmup": pair.without.data(),
                    "with_warmup": pair.warm.data(),
                }
                for (placement, optimizer, warmup), pair in pairs.items()
            ],
            "runs": runs,
        },
    )


class _Need(StrEnum):
    """Whether a placement needs a warm-up under an optimiser, the strongest answer first."""

    NEEDS = "needs it"
    GAINS = "gains from it"
    DOES_NOT = "does not"
    UNDECIDED = "undecided"
    UNLEARNED = "did not learn"


def all_needs(
    pairs: _OptimizerPairs, needs_nats: float, unigram_nats: float
) -> dict[tuple[str, str, int], _Need]:
    """By the interval of each gain: above `needs_nats`, above 0, below `needs_nats`, or across an
    edge.

    Intervals are corrected for how many pairs there are. A gain that is certain and below
    `needs_nats` is one; so is one that may be above it. A pair neither of whose runs learned
    decides nothing.
    """
    found = {}
    without, no_gain = (gains_at_most(pairs, edge, unigram_nats) for edge in (needs_nats, 0.0))
    for key, pair in pairs.items():
        if not pair.learned(unigram_nats):
            found[key] = _Need.UNLEARNED
        elif without[key] is False:
            found[key] = _Need.NEEDS
        elif no_gain[key] is False:
            found[key] = _Need.GAINS
        else:
            found[key] = _Need.DOES_NOT if without[key] else _Need.UNDECIDED
    return found


def claims(config: OptimizersConfig, pairs: _OptimizerPairs, unigram_nats: float) -> list[Claim]:
    """One for each placement of which a source speaks, and one for the order of placements under
    two optimisers.
    """
    made, edge = [], config.needs_nats
    at_most = gains_at_most(pairs, edge, unigram_nats)
    family = sum(pair.learned(unigram_nats) for pair in pairs.values())
    for placement, needs, source in _SAID:
        if placement not in config.placements:
            continue
        title = named(placement).title
        holds = {
            _named(config, *key[1:]): pair for key, pair in pairs.items() if key[0] == placement
        }
        does_not = {
            _named(config, *key[1:]): answer
            for key, answer in at_most.items()
            if key[0] == placement
        }
        unlearned = [setting for setting, pair in holds.items() if not pair.learned(unigram_nats)]
        made.append(
            claim(
                f"{title} {'needs' if needs else 'does without'} warm-up",
                f"{title} without warm-up ends {'more than' if needs else 'at most'} {edge:g} nats "
                "above its runs with it, each at its own best rate.",
                source=source,
                value="the loss without less that with warm-up, in nats",
                holds={setting: pair.gain for setting, pair in holds.items()},
                decided={
                    setting: answer if answer is None or not needs else not answer
                    for setting, answer in does_not.items()
                },
                beside=_decided_by(family, unlearned),
            )
        )
    if {"adamw", "muon"} <= set(config.optimizers):
        best = {
            (name, of): best_ladder(pairs, name, of)
            for name in config.placements
            for of in ("adamw", "muon")
        }
        less = {
            named(name).title: best[name, "adamw"].less(best[name, "muon"])
            for name in config.placements
            if any(learned(best[name, of].mean_nats, unigram_nats) for of in ("adamw", "muon"))
        }
        made.append(
            claim(
                "Muon ends lower than AdamW",
                "Under Muon a placement ends lower than under AdamW, each at its own best rate and "
                "warm-up.",
                source="Jordan 2024, Muon; Liu et al. 2025, arXiv:2502.16982, section 3, of larger "
                "models",
                value="AdamW's last loss less Muon's, in nats",
                holds=less or {"all": None},
                decided=holm({title: (one, 0.0, math.inf) for title, one in less.items()}),
                beside=f"Corrected by Holm over {len(less)} placements",
            )
        )
    return made


def best_ladder(pairs: _OptimizerPairs, placement: str, optimizer: str) -> Ladder:
    """The one of all its warm-ups whose mean is lowest."""
    own = (pair.better for key, pair in pairs.items() if key[:2] == (placement, optimizer))
    return min(own, key=lambda one: one.mean_nats)


def _named(config: OptimizersConfig, optimizer: str, warmup: int) -> str:
    return f"{TITLES[optimizer]}, warm-up of {percentage(warmup / config.updates, 0)}"


def _ladders(
    config: OptimizersConfig, pairs: _OptimizerPairs, placement: str, optimizer: str
) -> list[Ladder]:
    """Without warm-up, with the short one, and with the long one."""
    short, long = (pairs[placement, optimizer, warmup] for warmup in config.warmups[1:])
    return [short.without, short.warm, long.warm]


def _decided_by(family: int, unlearned: Sequence[str]) -> str:
    corrected = f"Corrected by Holm over {family} pairs"
    return (
        f"{corrected}; did not learn, so that it decides nothing: {joined(unlearned)}"
        if unlearned
        else corrected
    )


def figures(config: OptimizersConfig, pairs: _OptimizerPairs) -> list[StudyFigure]:
    """One an optimiser, a panel a placement."""
    return [
        StudyFigure.of_panels(
            name=f"rates_{optimizer}",
            title=f"{TITLES[optimizer]}: the loss over the rate",
            caption="Mean over the seeds of the ladder with their range; a run that did not stay "
            "finite counts as its loss at initialisation.",
            panels=[
                rates(
                    named(placement).title,
                    dict(
                        zip(
                            _words(config),
                            _ladders(config, pairs, placement, optimizer),
                            strict=True,
                        )
                    ),
                )
                for placement in config.placements
            ],
            told=f"Last loss over the peak rate under {TITLES[optimizer]}",
        )
        for optimizer in config.optimizers
    ]


_ENDS: Mapping[str, Callable[[Ladder], Any]] = {
    "loss": lambda one: one.mean_nats,
    "rate": lambda one: one.rate,
    "sensitivity": lambda one: one.sensitivity.value,
    "lost": lambda one: one.lost,
}
"""What a table says of each ladder."""


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
    config: OptimizersConfig, pairs: _OptimizerPairs, needs: Mapping[tuple[str, str, int], _Need]
) -> list[StudyTable]:
    """The one that a practitioner pins to the wall: who needs a warm-up; then where the runs of
    each optimiser end.
    """
    columns = [
        (optimizer, warmup) for optimizer in config.optimizers for warmup in config.warmups[1:]
    ]

    def cell(*key: Any) -> str:
        return f"{needs[key]}: {with_interval(pairs[key].gain, 2)}"

    wall = StudyTable(
        title="Who needs a warm-up: verdict, and by how many nats the runs without it end above "
        "those with it, each at its own best rate",
        columns=("placement", *(_named(config, *column) for column in columns)),
        rows=[
            (named(placement).title, *(cell(placement, *column) for column in columns))
            for placement in config.placements
        ],
    )
    ends = [
        table(
            f"{TITLES[optimizer]}: mean last loss in nats at the best rate (* the ladder's first "
            "or last), the sensitivity over the ladder, and how many of its runs did not stay "
            "finite; by warm-up",
            sorted(
                [
                    (named(name).title, _ladders(config, pairs, name, optimizer))
                    for name in config.placements
                ],
                key=lambda row: min(one.mean_nats for one in row[1]),
            ),
            [
                ("placement", lambda row: row[0]),
                *(
                    (
                        f"loss, {words}" if heading == "loss" else heading,
                        lambda row, i=i, of=of: of(row[1][i]),
                    )
                    for i, words in enumerate(_words(config))
                    for heading, of in _ENDS.items()
                ),
            ],
        )
        for optimizer in config.optimizers
    ]
    return [wall, *ends]


def conditions(
    config: OptimizersConfig,
    baselines: tuple[float, float],
    parameters: int,
    runs: Mapping[str, Any],
) -> dict[str, str]:
    """How the runs were made. baselines: the losses of models that know the frequencies of tokens,
    and of pairs.
    """
    climbing = "one seed" if config.ladder_seeds == 1 else f"{config.ladder_seeds} seeds"
    ladders = "; ".join(
        f"{TITLES[name]} {', '.join(f'{lr:g}' for lr in config.ladder(name))}"
        for name in config.optimizers
    )
    return {
        "loss": "negative log-likelihood per target token of the whole validation split, natural "
        "logarithm",
        "models": (
            f"preset {config.preset}: a decoder of {config.blocks} blocks of width {config.width}, "
            f"feed-forward {config.ffn_width}, {config.heads} heads over {config.key_value_heads} "
            f"of keys and values; {parameters:,} parameters under Pre-LN, those of other "
            "placements differ by what is their own"
        ),
        "weights": "N(0, 0.02²) for all, times the gains of the placement",
        "text": f"{config.batch_sequences} sequences of {config.sequence_length} tokens a batch; "
        f"unigram baseline {baselines[0]:.3f}, bigram baseline {baselines[1]:.3f}",
        "training": (
            f"{config.updates:,} updates, weight decay {config.weight_decay:g} of matrices and "
            f"embeddings, gradients not clipped, momentum {config.momentum:g} of SGD; full rate to "
            f"update {config.warmup_updates}, then in a straight line to 0, and a warm-up of "
            f"{config.short_warmup_updates} updates, of {config.warmup_updates} or none; products "
            f"in {config.precision}"
        ),
        "rates": f"{ladders}. {climbing} on the ladder, then {config.seeds} others at its best "
        f"{counted(config.best_rates, 'rate')}",
        "verdict": (
            f"needs it: the interval of the difference lies above {config.needs_nats:g} nats; "
            f"gains from it: above 0; does not: below {config.needs_nats:g}; else undecided; all "
            "corrected by Holm for how many pairs there are. A pair learned where the better of "
            f"its runs ends more than {LEARNED_NATS:g} nats below the unigram baseline; another "
            "decides nothing"
        ),
        "seeds": f"{config.seeds} of each configuration: weights and order; intervals are of 95 %, "
        "Student's t, over seeds in pairs",
        "trained by": in_words(dict(runs)),
    }


STUDY = Study(
    title="Placement, optimiser and warm-up, each at its own best rate",
    question=(
        "Which placement needs a learning-rate warm-up under which optimiser, when each has the "
        "rate that suits it best: in a Llama-like language model, under AdamW, Muon, Lion and SGD "
        "with momentum?"
    ),
    help="Which placements need warm-up, by optimiser?",
    scales=SCALES,
    run=run,
)
