"""Rates advised: what the formula says, and what is done with a user's own optimiser."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from normscope.doctor import find_stacks
from normscope.doctor.advise.advice import advise
from normscope.doctor.advise.calibration import Facts, calibration, of_table, to_table
from normscope.optim import OPTIMIZERS

FACTS = Facts(optimizer="adam", reach=-0.8, collapse=-2.0, rise=-0.5, sublayers=20)
CONSTANTS = replace(calibration(), collapse=-0.5, depth=-0.7, rise=-0.25, margin=0.3, warmup=1.0, warmup_slope=0.5)


def test_the_smaller_of_both_ends_decides():
    assert CONSTANTS.foreseen(FACTS) == pytest.approx(-2.5)
    assert CONSTANTS.foreseen(replace(FACTS, collapse=None)) == pytest.approx(-0.75)
    assert CONSTANTS.foreseen(replace(FACTS, collapse=0.0)) == pytest.approx(-0.75)
    assert CONSTANTS.foreseen(replace(FACTS, sublayers=200)) == pytest.approx(-3.2)
    assert CONSTANTS.safe_rate(FACTS) == pytest.approx(10**-2.8)


@given(st.floats(-6, 1), st.floats(0.01, 2))
def test_the_chance_rises_with_the_rate(decades, step):
    low, high = (CONSTANTS.chance(FACTS, 10**x) for x in (decades, decades + step))
    assert 0 <= low <= high <= 1
    assert CONSTANTS.chance(FACTS, 10 ** CONSTANTS.foreseen(FACTS)) == pytest.approx(0.5)


def test_warm_up_is_none_below_the_safe_rate_and_longer_for_higher_ones():
    safe = CONSTANTS.safe_rate(FACTS)
    assert CONSTANTS.warmup_updates(FACTS, safe) == 0
    assert CONSTANTS.warmup_updates(FACTS, 1.01 * safe) == 10
    assert CONSTANTS.warmup_updates(FACTS, 10**-1.5) == math.ceil(10**1.5)


def test_constants_survive_json():
    assert of_table(to_table(CONSTANTS)) == CONSTANTS


def test_every_optimiser_has_a_constant_or_names_the_one_whose_rates_it_bears():
    calibrated = set(calibration().optimizers)
    assert calibrated <= set(OPTIMIZERS)
    without = {name for name, one in OPTIMIZERS.items() if name not in calibrated and one.bears_as not in calibrated}
    assert without == set(), (
        f"nothing says which rates {without} bears: give its entry in optim/optimizers.py a `bears_as`, or fit "
        "a constant with `normscope study advice`"
    )


def encoder(blocks: int, *, norm_first: bool) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, norm_first=norm_first)
    norm = nn.LayerNorm(32) if norm_first else None
    model = nn.Sequential(
        nn.Embedding(50, 32), nn.TransformerEncoder(layer, blocks, norm, enable_nested_tensor=False), nn.Linear(32, 50)
    )
    for weight in model[1].parameters():
        if weight.ndim > 1:
            nn.init.xavier_uniform_(weight)
    return model


TOKENS = torch.randint(50, (8, 16), generator=torch.Generator().manual_seed(5))


def loss(logits):
    return nn.functional.cross_entropy(logits.view(-1, 50), TOKENS.roll(1, 1).reshape(-1))


def advised(model, optimizer="adam", rate=None):
    return advise(model, TOKENS, loss, optimizer=optimizer, wanted_rate=rate, stacks=find_stacks(model, TOKENS))


def test_post_ln_is_told_to_go_slower_than_pre_ln_and_slower_the_deeper():
    rates = {
        (blocks, norm_first): advised(encoder(blocks, norm_first=norm_first)).best_rate
        for blocks in (2, 8)
        for norm_first in (False, True)
    }
    assert rates[8, False] < rates[8, True] / 5
    assert rates[8, False] < rates[2, False] / 2


def test_a_wanted_rate_is_judged():
    model = encoder(6, norm_first=False)
    high, low = advised(model, rate=1.0), advised(model, rate=1e-7)
    assert high.stuck_chance > 0.99
    assert high.wanted_place == "above"
    assert low.stuck_chance < 0.01
    assert low.wanted_place == "below"
    assert high.wanted_rate == 1.0
    assert len(high.rates) == len(high.stuck_chances) == len(high.loss_along_step)
    none = advised(model)
    assert none.wanted_rate is none.stuck_chance is none.wanted_place is None
    assert none.best_interval.low < none.good_range.low < none.best_rate == none.good_range.high < none.stuck_rate


def test_an_instance_gives_what_its_name_does():
    model = encoder(2, norm_first=False)
    own = torch.optim.Adam(model.parameters(), lr=0.3, betas=(0.9, 0.98))
    named, instance = advised(model), advised(model, own)
    assert instance.optimizer == "adam"
    assert instance.best_rate == pytest.approx(named.best_rate, rel=1e-3)
    assert own.state == {}
    assert own.param_groups[0]["lr"] == 0.3


def test_what_an_instance_does_not_train_stays():
    model = encoder(2, norm_first=False)
    head = torch.optim.SGD(model[2].parameters(), lr=1.0)
    whole = torch.optim.SGD(model.parameters(), lr=1.0)
    assert advised(model, head).rates[0] != pytest.approx(advised(model, whole).rates[0], rel=1e-3)


def test_an_optimiser_it_was_not_calibrated_with_is_named_in_a_note():
    model = encoder(2, norm_first=True)
    found = advised(model, torch.optim.NAdam(model.parameters()))
    assert found.optimizer == "nadam"
    assert any("nadam is taken for one like Adam" in note for note in found.notes)


class Picky(torch.optim.SGD):
    def __init__(self, params, secret=None, **settings):
        if secret is None:
            raise RuntimeError("no secret")
        super().__init__(params, **settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adagrade"}, f"unknown optimizer 'adagrade'; choose {', '.join(OPTIMIZERS)}"),
        ({"rate": 0.0}, "must be positive and finite, got 0.0"),
        ({"rate": math.nan}, "must be positive and finite, got nan"),
    ],
)
def test_what_cannot_be_advised_on(options, message):
    with pytest.raises(ValueError, match=message):
        advised(encoder(1, norm_first=True), **options)


def test_an_instance_that_cannot_be_built_again():
    model = encoder(1, norm_first=True)
    with pytest.raises(ValueError, match="Picky cannot be built again from the settings of its groups"):
        advised(model, Picky(model.parameters(), secret=1, lr=1.0))
