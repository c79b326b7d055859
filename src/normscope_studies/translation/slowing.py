"""Judges whether warm-up slows down a placement that trains without it too: Pre-LN of figure 4, on
the one decay.
"""

import math
from collections.abc import Mapping
from typing import Any

from normscope.measure import Estimate

from ..engine.claims import claim, listed
from ..engine.page import Claim
from .arms import DE_EN, PRE, TranslationArm
from .figure_4 import Figure4Config
from .page import plain
from .runs import Trained, less, never_there, sooner

_Pairs = Mapping[str, tuple[TranslationArm, TranslationArm]]
"""Arms with the long warm-up and without one, by rate; the decay is the same."""


def slowing_claims(config: Figure4Config, found: Trained) -> list[Claim]:
    """Judges the end of the warm-up, and the end of the training; of De-En."""
    pairs, update = _pairs(config), _first_checkpoint_after(config)
    shares = {rate: found.updates_shares(warm, bare) for rate, (warm, bare) in pairs.items()}
    return [
        claim(
            "warm-up slows Pre-LN at first",
            "Where its warm-up is over, Pre-LN's loss is higher than without one, on the same "
            f"decay: at update {update:,}, the first checkpoint from there on.",
            source="Xiong et al. 2020, section 3.2",
            value="the loss with warm-up less that without, in nats",
            holds={rate: _at(pair, update, found) for rate, pair in pairs.items()},
            least=0.0,
        ),
        claim(
            "warm-up slows Pre-LN to the end",
            "Pre-LN's last loss, too, is higher with a warm-up than without one, on the same "
            "decay.",
            source="Xiong et al. 2020, abstract and section 1",
            value="the last loss with warm-up less that without, in nats",
            holds={rate: found.excess(warm, bare) for rate, (warm, bare) in pairs.items()},
            least=0.0,
            beside=_sooner_without(shares),
        ),
    ]


def _sooner_without(shares: Mapping[str, list[float | None]]) -> str:
    """Says after which share of the updates it is there without warm-up, where it is in every
    seed.
    """
    found = {rate: sooner(row) for rate, row in shares.items()}
    reached = {rate: one for rate, one in found.items() if isinstance(one, Estimate)}
    words = f"Without it, Pre-LN is there after this share of the updates: {listed(reached)}."
    return " ".join(filter(None, [words if reached else "", never_there(shares)]))


def slowing_data(config: Figure4Config, found: Trained) -> dict[str, Any]:
    """For results.json, by rate."""
    update = _first_checkpoint_after(config)
    return {
        rate: {
            "checkpoint_after_warm_up": update,
            "after_warm_up_less_without_nats": plain(_at(pair, update, found)),
            "last_less_without_nats": plain(found.excess(*pair)),
            "share_of_updates_without": found.updates_shares(*pair),
        }
        for rate, pair in _pairs(config).items()
    }


def _pairs(config: Figure4Config) -> _Pairs:
    def arm(lr: float, *, warm: bool) -> TranslationArm:
        return config.controlled(PRE, DE_EN, lr, warm=warm)

    return {f"rate {lr:g}": (arm(lr, warm=True), arm(lr, warm=False)) for lr in config.all_lrs}


def _first_checkpoint_after(config: Figure4Config) -> int:
    return config.epoch_updates * math.ceil(config.long_warmup_updates / config.epoch_updates)


def _at(pair: tuple[TranslationArm, TranslationArm], update: int, found: Trained) -> Estimate:
    """Measures by how much the loss with warm-up is higher at that update, over seeds taken in
    pairs.
    """
    warm, bare = pair
    return less(_nats_at(warm, update, found), _nats_at(bare, update, found))


def _nats_at(arm: TranslationArm, update: int, found: Trained) -> list[float]:
    return [run.nats_at(update) for run in found.curves[arm]]
