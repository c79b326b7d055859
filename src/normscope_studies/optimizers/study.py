"""The need of placements for a warm-up under an optimiser: the trainings, and what is found in
them.
"""

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from normscope.report.words import counted
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.estimates import plain_estimate
from ..engine.judging import LEARNED_NATS, bigram_nats
from ..engine.ladders import WarmupPair, climb, in_words, machines, sources
from ..engine.page import Findings
from ..engine.pieces import Pieces
from ..engine.study import Study
from .claims import TITLES, all_needs, claims
from .config import SCALES, OptimizersConfig, base_config, cells_of
from .page import figures, tables


def run(config: OptimizersConfig, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for text that is not there, and for a training that
    fails.
    """
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
    pairs = {}
    for (placement, optimizer, warmup), ladder in ladders.items():
        if warmup:
            without = ladders[placement, optimizer, 0]
            pairs[placement, optimizer, warmup] = WarmupPair(without=without, warm=ladder)
    cells = [cell for ladder in ladders.values() for cell in ladder.cells]
    runs = sources(cells)
    unigram_nats = LANGUAGE_MODEL.chance_nats(corpus)
    train, valid = (np.asarray(corpus.splits[name].tokens) for name in ("train", "valid"))
    bigram = bigram_nats(train, valid)
    needs = all_needs(pairs, config.needs_nats, unigram_nats)
    return Findings(
        conditions=conditions(config, (unigram_nats, bigram), parameters, runs)
        | {"machine": machines(cells)},
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


def conditions(
    config: OptimizersConfig,
    baselines: tuple[float, float],
    parameters: int,
    runs: Mapping[str, Any],
) -> dict[str, str]:
    """Says how the runs were made. baselines: the losses of models that know the frequencies of
    tokens, and of pairs.
    """
    climbing = "one seed" if config.ladder_seeds == 1 else f"{config.ladder_seeds} seeds"
    ladders = []
    for name in config.optimizers:
        rates = ", ".join(f"{lr:g}" for lr in config.ladder(name))
        ladders.append(f"{TITLES[name]} {rates}")
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
        "rates": (
            f"{'; '.join(ladders)}. {climbing} on the ladder, then {config.seeds} others at its "
            f"best {counted(config.best_rates, 'rate')}"
        ),
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
