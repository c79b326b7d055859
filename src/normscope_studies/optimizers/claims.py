"""The need of placements for a warm-up under an optimiser: the verdict on each pair of runs, and
the claims.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

from normscope.placement import named
from normscope.report.words import joined, percentage

from ..engine.claims import claim
from ..engine.judging import holm, learned
from ..engine.ladders import Ladder, WarmupPair, gains_at_most
from ..engine.page import Claim
from .config import OptimizersConfig

OptimizerPairs = Mapping[tuple[str, str, int], WarmupPair]
"""The pairs by placement, optimiser and warm-up."""
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


class WarmupNeed(StrEnum):
    """The need of a placement for a warm-up under an optimiser, the strongest answer first."""

    NEEDS = "needs it"
    GAINS = "gains from it"
    DOES_NOT = "does not"
    UNDECIDED = "undecided"
    UNLEARNED = "did not learn"


def all_needs(
    pairs: OptimizerPairs, needs_nats: float, unigram_nats: float
) -> dict[tuple[str, str, int], WarmupNeed]:
    """Decides every need by the interval of each gain: above `needs_nats`, above 0, below
    `needs_nats`, or across an edge.

    Intervals are corrected for how many pairs there are. A gain that is certain and below
    `needs_nats` is one; so is one that may be above it. A pair neither of whose runs learned
    decides nothing.
    """
    found = {}
    without = gains_at_most(pairs, needs_nats, unigram_nats)
    no_gain = gains_at_most(pairs, 0.0, unigram_nats)
    for key, pair in pairs.items():
        if not pair.learned(unigram_nats):
            found[key] = WarmupNeed.UNLEARNED
        elif without[key] is False:
            found[key] = WarmupNeed.NEEDS
        elif no_gain[key] is False:
            found[key] = WarmupNeed.GAINS
        else:
            found[key] = WarmupNeed.DOES_NOT if without[key] else WarmupNeed.UNDECIDED
    return found


def claims(config: OptimizersConfig, pairs: OptimizerPairs, unigram_nats: float) -> list[Claim]:
    """One for each placement of which a source speaks, and one for the order of placements under
    two optimisers.
    """
    made = []
    for placement, needs, source in _SAID:
        if placement in config.placements:
            made.append(_warmup_claim(config, pairs, unigram_nats, placement, needs, source))
    if {"adamw", "muon"} <= set(config.optimizers):
        made.append(_muon_claim(config, pairs, unigram_nats))
    return made


def _warmup_claim(
    config: OptimizersConfig,
    pairs: OptimizerPairs,
    unigram_nats: float,
    placement: str,
    needs: bool,
    source: str,
) -> Claim:
    """Makes the claim that a placement needs a warm-up, as its source says, or trains without
    one.
    """
    at_most = gains_at_most(pairs, config.needs_nats, unigram_nats)
    gains = {}
    decided = {}
    unlearned = []
    for key, pair in pairs.items():
        if key[0] != placement:
            continue
        setting = setting_name(config, *key[1:])
        gains[setting] = pair.gain
        if not pair.learned(unigram_nats):
            unlearned.append(setting)
        answer = at_most[key]
        decided[setting] = not answer if needs and answer is not None else answer
    family = sum(pair.learned(unigram_nats) for pair in pairs.values())
    title = named(placement).title
    return claim(
        f"{title} {'needs' if needs else 'does without'} warm-up",
        f"{title} without warm-up ends {'more than' if needs else 'at most'} "
        f"{config.needs_nats:g} nats above its runs with it, each at its own best rate.",
        source=source,
        value="the loss without less that with warm-up, in nats",
        holds=gains,
        decided=decided,
        beside=_decided_by(family, unlearned),
    )


def _muon_claim(config: OptimizersConfig, pairs: OptimizerPairs, unigram_nats: float) -> Claim:
    """Makes the claim that every placement ends lower under Muon than under AdamW."""
    less = {}
    for name in config.placements:
        adamw = best_ladder(pairs, name, "adamw")
        muon = best_ladder(pairs, name, "muon")
        if any(learned(one.mean_nats, unigram_nats) for one in (adamw, muon)):
            less[named(name).title] = adamw.less(muon)
    return claim(
        "Muon ends lower than AdamW",
        "Under Muon a placement ends lower than under AdamW, each at its own best rate and "
        "warm-up.",
        source="Jordan 2024, Muon; Liu et al. 2025, arXiv:2502.16982, section 3, of larger models",
        value="AdamW's last loss less Muon's, in nats",
        holds=less or {"all": None},
        decided=holm({title: (one, 0.0, math.inf) for title, one in less.items()}),
        beside=f"Corrected by Holm over {len(less)} placements",
    )


def best_ladder(pairs: OptimizerPairs, placement: str, optimizer: str) -> Ladder:
    """Returns the one of all its warm-ups whose mean is lowest."""
    own = (pair.better for key, pair in pairs.items() if key[:2] == (placement, optimizer))
    return min(own, key=lambda one: one.mean_nats)


def setting_name(config: OptimizersConfig, optimizer: str, warmup: int) -> str:
    return f"{TITLES[optimizer]}, warm-up of {percentage(warmup / config.updates, 0)}"


def _decided_by(family: int, unlearned: Sequence[str]) -> str:
    corrected = f"Corrected by Holm over {family} pairs"
    if not unlearned:
        return corrected
    return f"{corrected}; did not learn, so that it decides nothing: {joined(unlearned)}"
