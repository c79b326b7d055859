"""Rates advised: what known rates say of a model, and what is done with a user's own optimiser."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import normscope
from normscope.choosing.case import ModelToTrain
from normscope.choosing.choice import choose
from normscope.choosing.law import RateFacts, known_rates, law
from normscope.choosing.rates import CARRIED_HELD, WITHIN, BestOfSmaller, typical_rate
from normscope.choosing.recommending import recommended
from normscope.doctor import find_stacks
from normscope.doctor.advise import advise, facts_of
from normscope.doctor.lint.failed_trainings import (
    FAILED_TRAININGS,
    FailedTraining,
    failed_like,
)
from normscope.doctor.result import FAR
from normscope.optim import OPTIMIZERS
from normscope.report.words import learning_rate


def test_rates_are_known_of_every_optimiser_but_radam():
    # A new one stands here until a recipe in choosing/recipes.toml or a ladder of ours has a rate
    # for it.
    assert OPTIMIZERS.keys() - {one.facts.optimizer for one in known_rates()} == {"radam"}


def encoder(blocks: int, *, norm_first: bool) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        32, 2, 64, dropout=0.1, batch_first=True, norm_first=norm_first
    )
    norm = nn.LayerNorm(32) if norm_first else None
    model = nn.Sequential(
        nn.Embedding(50, 32),
        nn.TransformerEncoder(layer, blocks, norm, enable_nested_tensor=False),
        nn.Linear(32, 50),
    )
    for weight in model[1].parameters():
        if weight.ndim > 1:
            nn.init.xavier_uniform_(weight)
    return model


TOKENS = torch.randint(50, (8, 16), generator=torch.Generator().manual_seed(5))


def loss(logits, tokens):
    return nn.functional.cross_entropy(logits.view(-1, 50), tokens.reshape(-1))


def advised(model, optimizer="adam", rate=None, **settings):
    return advise(optimizer, stacks=find_stacks(model, TOKENS), wanted_rate=rate, **settings)


def test_the_doctor_and_choose_name_the_same_rate():
    """GPT-2 small, as the doctor finds it, and as `normscope choose` is asked for it."""
    for norm_first, placement in ((True, "pre-ln"), (False, "post-ln")):
        model = encoder(6, norm_first=norm_first)
        found = advised(model, "adamw")
        case = ModelToTrain(model="encoder-only", blocks=6, width=32, optimizer="adamw")
        known = typical_rate(RateFacts.of_case(case, placement))
        assert found.best_rate == known.rate
        assert (found.best_interval.low, found.best_interval.high) == (known.low, known.high)
        assert found.basis == known.stands_on
    case = ModelToTrain(model="encoder-only", blocks=6, width=32, optimizer="adamw")
    said = recommended(choose(case))[1].says
    for one in advised(encoder(6, norm_first=True), "adamw").rates_by_batch:
        assert learning_rate(one.rate, 2) in said
    told = recommended(choose(replace(case, batch_tokens=1024)))[1].says
    found = advised(encoder(6, norm_first=True), "adamw", batch_tokens=1024)
    assert found.rates_by_batch == ()
    assert told.startswith(learning_rate(found.best_rate, 2))


def test_post_ln_is_told_to_go_slower_than_pre_ln():
    post, pre = (
        advised(encoder(4, norm_first=norm_first)).best_rate for norm_first in (False, True)
    )
    # Eight sub-layers are twice the four up to which normed sums make no difference.
    assert post == pytest.approx(pre * 2 ** law().normed_depth)
    assert post < pre / 1.2


def test_a_wanted_rate_is_judged():
    model = encoder(6, norm_first=False)
    none = advised(model)
    assert none.wanted_rate is none.wanted_place is None
    high = none.best_interval.high
    for rate, place, too_high in (
        (1.0, "above", True),
        (1.01 * high, "above", False),
        (1.01 * FAR * high, "above", True),
        (none.best_rate, "in range", False),
        (1e-7, "below", False),
    ):
        found = advised(model, rate=rate)
        assert (found.wanted_rate, found.wanted_place, found.is_too_high) == (rate, place, too_high)
        assert found.best_interval == none.best_interval


def test_where_nothing_is_known_the_answer_is_unknown(monkeypatch):
    monkeypatch.setattr("normscope.doctor.advise.typical_rate", lambda facts: None)
    found = advised(encoder(2, norm_first=True), rate=1e-3)
    assert found.best_rate is found.best_interval is None
    assert found.wanted_place == "unknown"
    assert not found.is_too_high
    assert "near this width" in found.unknown


def test_trained_weights_get_no_rate_of_a_training_from_its_beginning():
    found = advised(encoder(2, norm_first=True), trained=True)
    assert found.best_rate is None
    assert "trained" in found.unknown


def test_a_rate_of_a_smaller_model_is_carried_as_the_law_moves():
    """Four blocks instead of one, and no word of what the law says of either."""
    small, large = encoder(1, norm_first=True), encoder(4, norm_first=True)
    asked = [facts_of(find_stacks(model, TOKENS), "adamw") for model in (small, large)]
    assert [one.sublayers for one in asked] == [2, 8]
    best = BestOfSmaller(5e-3, asked[0])
    found = advised(large, "adamw", rate=1e-1, smaller=best)
    assert found.best_rate == pytest.approx(5e-3 * 4 ** law().sublayers)
    span = found.best_interval
    assert found.best_rate / span.low == pytest.approx(WITHIN)
    assert span.high / found.best_rate == pytest.approx(WITHIN)
    assert found.wanted_place == "above"
    assert found.confidence == CARRIED_HELD[0] / CARRIED_HELD[1]
    assert "5e-3, the best of width 32 with 2 sub-layers" in found.basis
    # What is known without it stands beside it.
    known = advised(large, "adamw")
    assert known.carried == ""
    assert learning_rate(known.best_rate, 2) in found.basis
    assert (found.median_rate, found.usual_warmup_shares) == (
        known.median_rate,
        known.usual_warmup_shares,
    )


def test_a_rate_is_carried_where_none_is_known(monkeypatch):
    monkeypatch.setattr("normscope.doctor.advise.typical_rate", lambda facts: None)
    model = encoder(2, norm_first=True)
    same = BestOfSmaller(5e-3, facts_of(find_stacks(model, TOKENS), "adam"))
    found = advised(model, smaller=same)
    assert found.best_rate == pytest.approx(5e-3)
    assert found.unknown == ""
    assert advised(model, smaller=same, trained=True).best_rate is None


def test_an_instance_gives_what_its_name_does_and_its_own_rate_is_the_wanted_one():
    model = encoder(2, norm_first=False)
    own = torch.optim.Adam(model.parameters(), lr=0.3, betas=(0.9, 0.98))
    named, instance = advised(model), advised(model, own)
    assert instance.optimizer == "adam"
    assert instance.best_rate == named.best_rate
    assert own.state == {}
    assert own.param_groups[0]["lr"] == 0.3
    diagnosis = normscope.diagnose(model, TOKENS, loss=loss, optimizer=own)
    assert diagnosis.advice.wanted_rate == 0.3
    assert "rate-out-of-range" in [finding.id for finding in diagnosis.findings]
    assert diagnosis.verdict == "warnings"
    low = torch.optim.Adam(model.parameters(), lr=named.best_rate, betas=(0.9, 0.98))
    calm = normscope.diagnose(model, TOKENS, loss=loss, optimizer=low)
    assert "rate-out-of-range" not in [finding.id for finding in calm.findings]


class Unheard(torch.optim.Adam):
    """Of a name that the list will not come to have."""


def test_an_optimiser_that_is_not_listed_is_named_in_a_note():
    model = encoder(2, norm_first=True)
    found = advised(model, Unheard(model.parameters()))
    assert found.optimizer == "unheard"
    assert found.best_rate == advised(model).best_rate
    assert any("unheard is taken for one like Adam" in note for note in found.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"optimizer": "adagrade"},
            f"unknown optimizer 'adagrade'; choose {', '.join(OPTIMIZERS)}",
        ),
        ({"rate": 0.0}, "must be positive and finite, got 0.0"),
        ({"rate": math.nan}, "must be positive and finite, got nan"),
    ],
)
def test_what_cannot_be_advised_on(options, message):
    with pytest.raises(ValueError, match=message):
        advised(encoder(1, norm_first=True), **options)


@pytest.mark.parametrize(
    ("rate", "warmup", "severity", "said"),
    [
        (0.99, None, [], ""),
        (0.1, None, ["info"], "nothing, or compare it with"),
        (1.3, None, ["info"], "or watch the loss where"),
        (1.3 * FAR, None, ["warning"], "take a rate near"),
        (1.3 * FAR, 0, ["warning"], "take a rate near"),
        (1.3 * FAR, 100, ["info"], "or watch the loss where"),
    ],
)
def test_a_rate_outside_the_range_is_found_and_a_warm_up_makes_it_a_note(
    rate, warmup, severity, said
):
    """rate: over the upper end of the range, which is nine times the lower one."""
    model = encoder(2, norm_first=True)
    wanted = rate * advised(model, batch_tokens=512).best_interval.high
    found = normscope.diagnose(
        model,
        TOKENS,
        loss=loss,
        wanted_rate=wanted,
        wanted_warmup_updates=warmup,
        batch_tokens=512,
    )
    faults = [one for one in found.findings if one.id == "rate-out-of-range"]
    assert [one.severity for one in faults] == severity
    assert all(said in one.fix for one in faults)
    assert all(
        ("100 updates carries it is not known" in one.message) == bool(warmup) for one in faults
    )


def long_post_ln() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(256, 4, 64, 0.0, batch_first=True) for _ in range(8)]
    return nn.Sequential(*layers, nn.Linear(256, 30))


@pytest.mark.parametrize(
    ("rate", "warmup_updates", "severities"),
    [
        (2e-3, 0, ["warning"]),
        (2e-3, 80, ["warning"]),
        (2e-3, None, ["info"]),
        (2e-3, 4000, []),
        (1e-4, 0, []),
    ],
)
def test_a_rate_at_which_trainings_of_ours_learned_nothing(rate, warmup_updates, severities):
    found = normscope.diagnose(
        long_post_ln(),
        (torch.randn(2, 6, 256),),
        wanted_rate=rate,
        wanted_warmup_updates=warmup_updates,
        laws=False,
    )
    told = [one for one in found.findings if "learned nothing" in one.message]
    assert [one.severity for one in told] == severities
    assert all(one.id == "rate-out-of-range" for one in told)


def of_the_results(training: FailedTraining) -> tuple[dict[float, float], float]:
    """Losses by rate, and that of who knows how frequent each token is."""
    file = Path(__file__).parents[2] / training.source / "results.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    size = f"{training.sublayers // 2}x{training.width}"
    if "models" in stored:
        nats = stored["models"][f"opt-post-ln-{size}"]["nats"]
        return {float(rate): loss for rate, loss in nats.items()}, stored["baselines"][
            "unigram_nats"
        ]
    ladder = next(one for one in stored["ladders"] if f"post-ln_{size}_256" in one["case"])
    return {one["rate"]: one["nats"] for one in ladder["trainings"]}, ladder["unigram_nats"]


@pytest.mark.parametrize(
    "training", FAILED_TRAININGS, ids=lambda one: f"{one.sublayers}x{one.width}"
)
def test_the_trainings_that_learned_nothing_are_those_of_the_results(training):
    losses, unigram_nats = of_the_results(training)
    assert max(losses) == training.highest_rate
    assert training.lowest_rate in losses
    above = [loss for rate, loss in losses.items() if rate >= training.lowest_rate]
    # Between 2.6 and 2.2 is what those that learn end at.
    assert len(above) > 1
    assert all(loss > unigram_nats - 0.01 for loss in above)


def test_a_narrow_and_deep_post_ln_fails_at_rates_that_a_shallow_one_learns_at():
    asked = {"width": 64, "rate": 1e-3}
    assert failed_like(sublayers=32, **asked).source == "results/rate_transfer"
    assert failed_like(sublayers=8, **asked) is None
    assert failed_like(sublayers=16, width=512, rate=1e-3).source == "results/rates_at_size"
