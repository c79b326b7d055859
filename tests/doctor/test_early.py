"""The chance to be stuck, from a short training at the rate that is wanted."""

import math

import pytest
import torch
from torch import nn

from normscope.doctor.advise.rule import (
    MOST_RISEN_NATS,
    EarlyFacts,
    EarlyRule,
    LinearFit,
    ModelFacts,
    shipped_early_rule,
)
from normscope.doctor.advise.short_run import ShortRun

FACTS = ModelFacts(
    optimizer="adam",
    reach=-1.0,
    fading=-2.0,
    rise=-1.5,
    sublayers=1.0,
    width=1.5,
    normed_sums=1.0,
    normed_depth=0.0,
    normed_branches=0.0,
)


def trial(*losses: float, rate: float = 1e-3, spread: float = 0.1) -> ShortRun:
    return ShortRun(rate=rate, warmup_updates=0, losses=losses, spreads=(1.0, *[spread] * (len(losses) - 1)))


def test_what_is_read_of_a_short_training():
    early = EarlyFacts.of_trial(FACTS, trial(5.0, *[4.0] * 11), 12)
    assert early.values() == {**FACTS.values(), "rate": -3.0, "least_spread": -1.0, "risen": -1.0}
    assert early.optimizer == "adam"


@pytest.mark.parametrize("losses", [(5.0, math.nan), (5.0, *[4.0] * 10, math.inf), (5.0, *[90.0] * 11)])
def test_a_training_that_left_all_bounds_has_risen_as_far_as_counts(losses):
    assert EarlyFacts.of_trial(FACTS, trial(*losses), 12).risen == MOST_RISEN_NATS


def test_the_chance_is_the_logistic_of_the_odds_and_of_an_unknown_optimiser_adam_s():
    rule = EarlyRule(
        odds=LinearFit(offset=1.0, weights={"risen": 2.0}, optimizers={"adam": 0.0, "sgd": -5.0}), updates=3
    )
    assert rule.stuck_chance(FACTS, trial(2.0, 2.5, 2.5)) == pytest.approx(1 / (1 + math.exp(-1 - 2 * (7 / 3 - 2))))
    assert rule.odds(EarlyFacts.of_trial(FACTS, trial(2.0, 2.0, 2.0), 3)) == 1.0


def test_the_shipped_rule_fears_what_lost_its_spread_and_rose():
    rule = shipped_early_rule()
    well, ill = trial(5.0, *[4.5] * 11, spread=0.9), trial(5.0, *[6.0] * 11, spread=1e-6)
    assert rule.updates == 12
    assert 0 <= rule.stuck_chance(FACTS, well) < rule.stuck_chance(FACTS, ill) <= 1
    assert set(rule.odds.weights) <= set(EarlyFacts.of_trial(FACTS, well, 12).values())
    assert rule.odds.optimizers["adam"] == rule.odds.optimizers["adamw"] == 0


def test_the_doctor_tries_the_wanted_rate_and_puts_every_weight_back():
    from normscope.doctor.advise.advice import advise
    from normscope.doctor.advise.short_run import Probing

    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    def item(number: int) -> tuple[torch.Tensor]:
        return (torch.randint(0, 20, (2, 8), generator=torch.Generator().manual_seed(number)),)

    def loss(logits: torch.Tensor, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.mT, inputs[0].roll(1, 1))

    def asked(rate: float | None, probing: Probing | None):
        return advise(model, item(0), loss, optimizer="adam", wanted_rate=rate, stacks=(), probing=probing)

    probing = Probing(batches=item, updates=60)
    low, high = asked(1e-4, probing), asked(30.0, probing)
    assert low.wanted_training is not None
    assert high.wanted_training is not None
    assert (low.wanted_training.rate, low.wanted_training.updates) == (1e-4, 12)
    assert low.updates_used == 60 + 12
    assert low.stuck_chance is not None
    assert high.stuck_chance is not None
    assert low.stuck_chance < high.stuck_chance
    assert asked(None, probing).wanted_training is None
    assert asked(1e-4, None).wanted_training is None
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
