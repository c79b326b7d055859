"""Rates advised: what the rule says, and what is done with a user's own optimiser."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import normscope
from normscope.doctor import find_stacks
from normscope.doctor.advise.advice import advise
from normscope.doctor.advise.rule import FittedTo, LinearFit, ModelFacts, rule_of_table, shipped_rule, to_table
from normscope.doctor.advise.short_run import Probing
from normscope.optim import OPTIMIZERS

FACTS = ModelFacts(
    optimizer="adam",
    reach=-0.8,
    fading=-2.0,
    rise=-0.5,
    sublayers=1.0,
    width=1.5,
    normed_sums=1.0,
    normed_depth=0.0,
    normed_branches=0.0,
)
RULE = replace(
    shipped_rule(),
    best=LinearFit(offset=-1.0, weights={"reach": 0.5, "fading": 0.25}, optimizers={"adam": 0.0, "sgd": 2.0}),
    stuck=LinearFit(offset=-0.5, weights={"fading": 0.5}, optimizers={}),
    deviation=0.2,
)


def test_a_rule_is_an_offset_weighted_facts_and_the_optimisers_own():
    assert RULE.best(FACTS) == pytest.approx(-1.0 - 0.4 - 0.5)
    assert RULE.best(replace(FACTS, optimizer="sgd")) == pytest.approx(0.1)
    assert RULE.best(replace(FACTS, optimizer="nobody knows it")) == RULE.best(FACTS)


@given(st.floats(-6, 1), st.floats(0.01, 2))
def test_the_chance_to_be_stuck_rises_with_the_rate(decades, step):
    low, high = (RULE.stuck_chance(FACTS, 10**x) for x in (decades, decades + step))
    assert 0 <= low <= high <= 1
    assert RULE.stuck_chance(FACTS, 10 ** RULE.stuck(FACTS)) == pytest.approx(0.5)


def test_the_distance_is_to_the_nearest_model_in_units_of_each_fact():
    tested = FittedTo(
        scales={"reach": 0.1, "width": 0.5},
        points=({"reach": -0.8, "width": 1.5}, {"reach": 0.0, "width": 1.5}),
        limit=1.0,
    )
    assert tested.distance(FACTS) == 0.0
    assert tested.distance(replace(FACTS, reach=-0.5)) == pytest.approx(3.0)
    assert tested.distance(replace(FACTS, reach=-0.7, width=2.5)) == pytest.approx(math.sqrt(1 + 4))


def test_constants_survive_json():
    assert rule_of_table(to_table(RULE)) == RULE


def test_every_optimiser_has_a_constant_or_names_the_one_whose_rates_it_bears():
    fitted = set(shipped_rule().best.optimizers)
    assert fitted <= set(OPTIMIZERS)
    without = {name for name, one in OPTIMIZERS.items() if name not in fitted and one.bears_as not in fitted}
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


def batch_of(number: int) -> torch.Tensor:
    return torch.randint(50, (8, 16), generator=torch.Generator().manual_seed(number))


def loss(logits, tokens):
    return nn.functional.cross_entropy(logits.view(-1, 50), tokens.reshape(-1))


def advised(model, optimizer="adam", rate=None, probing=None, watch=lambda *_: None):
    return advise(
        model,
        TOKENS,
        loss,
        optimizer=optimizer,
        wanted_rate=rate,
        stacks=find_stacks(model, TOKENS),
        probing=probing,
        watch=watch,
    )


def test_post_ln_is_told_to_go_slower_than_pre_ln_and_slower_the_deeper():
    rates = {
        (blocks, norm_first): advised(encoder(blocks, norm_first=norm_first)).best_rate
        for blocks in (2, 8)
        for norm_first in (False, True)
    }
    assert rates[8, False] < rates[8, True] / 2
    assert rates[8, False] < rates[2, False] / 2


def test_a_wanted_rate_is_judged():
    model = encoder(6, norm_first=False)
    high, low = advised(model, rate=1.0), advised(model, rate=1e-7)
    assert high.stuck_chance > 0.9
    assert high.wanted_place == "above"
    assert low.stuck_chance < 0.01
    assert low.wanted_place == "below"
    assert high.wanted_rate == 1.0
    assert len(high.rates) == len(high.stuck_chances) == len(high.loss_along_step)
    none = advised(model)
    assert none.wanted_rate is none.stuck_chance is none.wanted_place is None
    assert none.good_range.low < none.best_rate <= none.good_range.high <= none.stuck_rate
    assert none.best_interval.low < none.best_rate < none.best_interval.high
    assert advised(model, rate=none.best_rate).wanted_place == "in range"


def test_far_from_what_was_tested_the_answer_is_unknown(monkeypatch):
    narrow = replace(shipped_rule(), tested=replace(shipped_rule().tested, limit=0.0))
    monkeypatch.setattr("normscope.doctor.advise.advice.shipped_rule", lambda: narrow)
    found = advised(encoder(2, norm_first=True), rate=1e-3)
    assert found.best_rate is found.best_interval is found.good_range is found.stuck_rate is found.stuck_chance is None
    assert found.wanted_place == "unknown"
    assert found.distance > found.distance_limit == 0.0
    assert "only short trainings" in found.unknown
    looked = advised(encoder(2, norm_first=True), probing=Probing(batches=batch_of, updates=30))
    assert looked.best_rate is not None
    assert looked.unknown == ""


def test_an_instance_gives_what_its_name_does_and_its_own_rate_is_the_wanted_one():
    model = encoder(2, norm_first=False)
    own = torch.optim.Adam(model.parameters(), lr=0.3, betas=(0.9, 0.98))
    named, instance = advised(model), advised(model, own)
    assert instance.optimizer == "adam"
    assert instance.best_rate == pytest.approx(named.best_rate, rel=1e-3)
    assert own.state == {}
    assert own.param_groups[0]["lr"] == 0.3
    diagnosis = normscope.diagnose(model, TOKENS, loss=loss, optimizer=own)
    assert diagnosis.advice.wanted_rate == 0.3
    assert "rate-out-of-range" in [finding.id for finding in diagnosis.findings]
    assert diagnosis.verdict == "warnings"
    low = torch.optim.Adam(model.parameters(), lr=named.best_rate, betas=(0.9, 0.98))
    calm = normscope.diagnose(model, TOKENS, loss=loss, optimizer=low)
    assert "rate-out-of-range" not in [finding.id for finding in calm.findings]


def test_what_an_instance_does_not_train_stays():
    model = encoder(2, norm_first=False)
    head = torch.optim.SGD(model[2].parameters(), lr=1.0)
    whole = torch.optim.SGD(model.parameters(), lr=1.0)
    assert advised(model, head).rates[0] != pytest.approx(advised(model, whole).rates[0], rel=1e-3)


def test_an_optimiser_it_was_not_fitted_with_is_named_in_a_note():
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
        ({"probing": Probing(batches=batch_of, updates=29)}, "a probe needs at least 30 updates, got 29"),
        ({"probing": Probing(batches=[], updates=30)}, "the batches to train on are none"),
    ],
)
def test_what_cannot_be_advised_on(options, message):
    with pytest.raises(ValueError, match=message):
        advised(encoder(1, norm_first=True), **options)


def test_an_instance_that_cannot_be_built_again():
    model = encoder(1, norm_first=True)
    with pytest.raises(ValueError, match="Picky cannot be built again from the settings of its groups"):
        advised(model, Picky(model.parameters(), secret=1, lr=1.0))
