"""Short trainings: as a loop of one's own would make them, and weights come back bit for bit."""

import copy
import math

import pytest
import torch
from torch import nn

from normscope.doctor.advise.advice import advise
from normscope.doctor.advise.optimizers import maker_of
from normscope.doctor.advise.probe import (
    LEAST_UPDATES,
    MARGIN,
    PLACES,
    carries,
    ladder,
    length,
    outcome_of,
    probe,
    reading_of,
    shortest_warmup,
)
from normscope.doctor.advise.probe import length_with_tail as with_tail
from normscope.doctor.advise.rule import LinearFit, ProbeRule
from normscope.doctor.advise.short_run import LEAST_SPREAD, Probing, ShortRun, batches_of, train_shortly
from normscope.measure.unchanged import restored

RULE = ProbeRule(
    beyond=LinearFit(offset=-0.1, weights={"lowest": 1.0}, optimizers={"adam": 0.0, "sgd": 0.5}),
    low=-0.3,
    high=0.3,
    below=0.3,
    above=0.2,
    updates=60,
    trial_updates=12,
    horizon_updates=200,
    regret_nats=0.1,
    confidence=0.9,
)


def model_of(dropout: float = 0.1) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Embedding(20, 16), nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 20)
    )


def item(number: int) -> torch.Tensor:
    return torch.randint(20, (24,), generator=torch.Generator().manual_seed(number))


def loss(logits, tokens):
    return nn.functional.cross_entropy(logits, tokens)


BATCHES = batches_of(item, loss)


def test_a_short_training_is_the_one_that_a_loop_makes():
    model = model_of()
    reference = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(reference.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.01)
    torch.manual_seed(7)
    expected = []
    for number in range(6):
        optimizer.param_groups[0]["lr"] = 0.01 * min(1.0, (number + 1) / 4)
        tokens = item(number)
        value = loss(reference(tokens), tokens)
        expected.append(float(value.detach()))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with restored(model):
        torch.manual_seed(7)
        found = train_shortly(model, BATCHES, maker_of(model, "adamw"), rate=0.01, updates=6, warmup_updates=4)
    assert found.losses == pytest.approx(expected, rel=1e-6)
    assert found.spreads[0] == 1.0
    assert len(found.spreads) == 6


def test_an_output_of_zeros_at_the_start_is_not_stuck():
    """Its spread is only there later: beside none a small one, as of a small loss, said nothing."""
    model = model_of()
    torch.nn.init.zeros_(model[-1].weight)
    torch.nn.init.zeros_(model[-1].bias)
    with restored(model):
        found = train_shortly(model, BATCHES, maker_of(model, "sgd"), rate=1e-3, updates=12)
    assert found.spreads[0] == 0.0
    assert max(found.spreads) == 1.0
    assert outcome_of(found) == "learns"


def test_everything_is_bit_for_bit_what_it_was():
    model = model_of()
    model[5].weight.requires_grad_(False)
    model[2].eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [parameter.grad for parameter in model.parameters()]
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    probe(model, BATCHES, maker_of(model, "sgd"), updates=LEAST_UPDATES, expected=1.0, rule=RULE)
    shortest_warmup(model, BATCHES, maker_of(model, "sgd"), rate=1e3, updates=60)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(new.grad is old for new, old in zip(model.parameters(), gradients, strict=True))
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_after_an_error_too():
    model = model_of()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def failing(number):
        if number == 3:
            raise RuntimeError("the disk is gone")
        return item(number)

    with pytest.raises(RuntimeError, match="the disk is gone"):
        probe(model, batches_of(failing, loss), maker_of(model, "adam"), updates=60, expected=-2.0, rule=RULE)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def trial(rate: float, loss: float, spread: float, updates: int = 10) -> ShortRun:
    return ShortRun(
        rate=rate, warmup_updates=0, losses=(4.0,) + (loss,) * (updates - 1), spreads=(1.0,) + (spread,) * (updates - 1)
    )


RATES = (-3.0, -2.5, -2.0, -1.5, -1.0)


def test_the_lowest_loss_is_found_between_rates_and_counted_from_the_middle_one():
    seen = reading_of([trial(10**x, (x + 2.2) ** 2, 0.5) for x in RATES], 10, optimizer="adam")
    assert seen.lowest == pytest.approx(-0.2)
    assert seen.gain == pytest.approx(4.0 - (2.2 - 2.0) ** 2)
    assert RULE.beyond(seen) == pytest.approx(-0.3)


def test_spreads_are_those_about_the_expected_rate():
    seen = reading_of([trial(10**x, -x, 10 ** (-x - 4)) for x in RATES], 10, optimizer="adam")
    assert (seen.spread_below, seen.spread, seen.spread_above) == pytest.approx((-1.5, -2.0, -2.5))
    gone = reading_of([trial(10**x, -x, 0.0) for x in RATES], 10, optimizer="adam")
    assert gone.spread == pytest.approx(LEAST_SPREAD)


def test_a_training_that_ended_early_has_failed():
    broken = ShortRun(rate=0.1, warmup_updates=0, losses=(4.0, math.nan), spreads=(1.0, math.nan))
    rising = [trial(10**x, 3.0 - x / 10, 0.9) for x in RATES[:-1]]
    seen = reading_of([*rising, broken], 10, optimizer="adam")
    assert seen.lowest == pytest.approx(0.5)
    nowhere = reading_of([broken] * 5, 10, optimizer="adam")
    assert (nowhere.gain, nowhere.spread) == (0.0, LEAST_SPREAD)


@pytest.mark.parametrize("updates", [30, 34, 60, 61, 200])
def test_a_probe_makes_no_more_updates_than_it_is_given(updates):
    assert updates - len(PLACES) < len(PLACES) * length(updates) <= updates


def test_too_few_updates_are_refused():
    with pytest.raises(ValueError, match="at least 30"):
        length(29)


def test_rates_are_factors_of_four_about_the_expected_one_and_progress_is_told():
    model, told = model_of(0.0), []
    found = probe(
        model,
        BATCHES,
        maker_of(model, "sgd"),
        updates=60,
        expected=-4.0,
        rule=RULE,
        watch=lambda *stage: told.append(stage),
    )
    rates = [math.log10(one.rate) for one in found.trials]
    assert rates == pytest.approx([-4 + math.log10(4) * place for place in PLACES])
    # So slow rates learn nothing yet: the largest is best.
    assert found.best == pytest.approx(rates[-1] - 0.1 + 0.5)
    assert found.updates_used == 60
    assert told == [("short trainings", done, 60) for done in range(61)]


def test_the_ladder_of_warm_ups_fits_into_its_updates():
    for updates in (10, 49, 60, 200, 700):
        assert sum(map(with_tail, ladder(updates))) <= updates
    assert ladder(670) == (10, 20, 40, 80, 160)
    assert ladder(49) == ()


def risen(rate: float, to: float) -> ShortRun:
    low = trial(rate, 3.0, 0.5)
    return ShortRun(rate=rate, warmup_updates=0, losses=low.losses + (to,) * 10, spreads=low.spreads + (0.5,) * 10)


def test_a_warm_up_carries_a_rate_where_tokens_are_still_told_apart():
    assert carries(trial(0.1, 3.0, 0.5))
    assert not carries(risen(0.1, to=3.2))
    assert outcome_of(risen(0.1, to=3.2)) == "unsettled"
    assert outcome_of(trial(0.1, 3.0, 0.05)) == "stuck"
    assert outcome_of(trial(0.1, 3.0, 0.5)) == "learns"
    assert carries(risen(0.1, to=3.05))
    assert not carries(trial(0.1, 3.0, 1e-3))
    assert not carries(trial(0.1, 5.0, 0.5))
    assert not carries(trial(0.1, math.nan, 0.5))


def test_the_shortest_warm_up_ends_the_search():
    model = model_of(0.0)
    found = shortest_warmup(model, BATCHES, maker_of(model, "adam"), rate=1e-3, updates=500)
    assert (found.shortest, found.named) == (10, 10 * MARGIN)
    assert len(found.trials) == 1
    none = shortest_warmup(model, BATCHES, maker_of(model, "sgd"), rate=1e30, updates=110)
    assert (none.shortest, none.named) == (None, None)
    assert [one.warmup_updates for one in none.trials] == [10, 20]


def test_a_loader_is_begun_again_and_its_items_are_kept():
    drawn = []

    class Loader:
        def __iter__(self):
            for number in range(3):
                drawn.append(number)
                yield item(number)

    batches = batches_of(Loader(), loss)
    seen = [batches(number)[0] for number in (0, 1, 2, 3, 4, 0)]
    assert torch.equal(seen[3], seen[0])
    assert torch.equal(seen[5], seen[0])
    assert drawn == [0, 1, 2]


def test_a_rate_beyond_the_range_is_tried_with_warm_ups():
    model = model_of(0.0)
    settings = {"optimizer": "sgd", "stacks": (), "probing": Probing(batches=item, updates=50)}
    above = advise(model, loss, wanted_rate=1e6, **settings)
    assert above.source == "probe"
    assert above.warmup.shortest_updates is None
    assert len(above.probed) == 5
    assert "50 updates were made" in above.notes[-1]
    assert above.updates_used == sum(one.updates for one in (*above.probed, above.wanted_training, *above.warmup.tried))


def test_the_wanted_rate_is_tried_and_every_weight_put_back():
    model = model_of()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    def asked(rate, probing):
        return advise(model, loss, optimizer="adam", wanted_rate=rate, stacks=(), probing=probing)

    probing = Probing(batches=item, updates=60)
    low, high = asked(1e-4, probing), asked(1e30, probing)
    assert (low.wanted_training.rate, low.wanted_training.updates) == (1e-4, 12)
    assert low.updates_used == 60 + 12
    assert (low.wanted_training.outcome, high.wanted_training.outcome) == ("learns", "not finite")
    assert high.is_too_high
    assert not low.is_too_high
    assert asked(None, probing).wanted_training is None
    assert asked(1e-4, None).wanted_training is None
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
