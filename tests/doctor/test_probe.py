"""Short trainings: as a loop of one's own would make them, and weights come back bit for bit."""

import copy
import math

import pytest
import torch
from torch import nn

from normscope.doctor.advise.advice import advise
from normscope.doctor.advise.batches import Probing, batches_of
from normscope.doctor.advise.optimizers import maker_of
from normscope.doctor.advise.probe import lengths, probe
from normscope.doctor.advise.reading import read
from normscope.doctor.advise.rule import ProbeRule
from normscope.doctor.advise.trial import Trial, restored, train_shortly
from normscope.doctor.advise.warmup import carries, ladder, length, shortest_warmup

RULE = ProbeRule(loss=-0.1, level=-2.0, share=1.0, low=-0.3, high=0.3)


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


def test_everything_is_bit_for_bit_what_it_was():
    model = model_of()
    model[5].weight.requires_grad_(False)
    model[2].eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [parameter.grad for parameter in model.parameters()]
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    probe(model, BATCHES, maker_of(model, "sgd"), updates=24, expected=1.0, rule=RULE)
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


def trial(rate: float, loss: float, spread: float, updates: int = 10) -> Trial:
    return Trial(
        rate=rate, warmup_updates=0, losses=(4.0,) + (loss,) * (updates - 1), spreads=(1.0,) + (spread,) * (updates - 1)
    )


def test_the_lowest_loss_decides_where_the_spread_stays():
    seen = [trial(10**x, (x + 2.2) ** 2, 0.5) for x in (-3.0, -2.4, -1.8)]
    assert read(seen, 10, RULE) == pytest.approx(-2.2 - 0.1)


def test_a_spread_that_fades_decides_where_the_loss_still_falls():
    seen = [trial(10**x, -x, 10 ** (-x - 5)) for x in (-4.0, -3.5, -2.5, -2.0)]
    assert read(seen, 10, RULE) == pytest.approx(-3.0)


def test_a_training_that_ended_early_has_failed():
    broken = Trial(rate=1e-2, warmup_updates=0, losses=(4.0, math.nan), spreads=(1.0, math.nan))
    assert read([trial(1e-4, 3.9, 0.9), trial(1e-3, 3.0, 0.8), broken], 10, RULE) < -2


@pytest.mark.parametrize("updates", [24, 25, 60, 61, 200])
def test_a_probe_makes_no_more_updates_than_it_is_given(updates):
    first, second = lengths(updates)
    assert updates - 2 <= 3 * first + 2 * second <= updates
    assert second > first


def test_the_second_round_is_about_the_best_of_the_first_and_progress_is_told():
    model, told = model_of(0.0), []
    found = probe(
        model,
        BATCHES,
        maker_of(model, "adam"),
        updates=60,
        expected=-4.0,
        rule=RULE,
        watch=lambda *stage: told.append(stage),
    )
    rates = [math.log10(one.rate) for one in found.trials]
    assert rates[:3] == pytest.approx([-4.602, -4.0, -3.398], abs=1e-3)
    assert rates[4] - rates[3] == pytest.approx(math.log10(2))
    # So slow rates learn nothing yet: the largest is best, and the next are about it.
    assert min(rates[3:]) > -4
    assert found.updates_used == 60
    assert told[0] == ("short trainings", 0, 60)
    assert told[-1] == ("short trainings", 60, 60)
    assert [done for _, done, _ in told] == list(range(61))


def test_the_ladder_of_warm_ups_fits_into_its_updates():
    for updates in (10, 20, 60, 200, 500):
        assert sum(map(length, ladder(updates))) <= updates
    assert ladder(500) == (10, 20, 40, 80, 160)
    assert ladder(10) == ()


def test_a_warm_up_carries_a_rate_where_tokens_are_still_told_apart():
    assert carries(trial(0.1, 3.0, 0.5))
    assert not carries(trial(0.1, 3.0, 1e-3))
    assert not carries(trial(0.1, 5.0, 0.5))
    assert not carries(trial(0.1, math.nan, 0.5))


def test_the_shortest_warm_up_ends_the_search():
    model = model_of(0.0)
    found = shortest_warmup(model, BATCHES, maker_of(model, "adam"), rate=1e-3, updates=500)
    assert found.shortest == 10
    assert len(found.trials) == 1
    none = shortest_warmup(model, BATCHES, maker_of(model, "sgd"), rate=1e30, updates=60)
    assert none.shortest is None
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
    settings = {"optimizer": "sgd", "stacks": (), "probing": Probing(batches=item, updates=24)}
    above = advise(model, item(0), loss, wanted_rate=1e6, **settings)
    assert above.source == "probe"
    assert above.warmup.shortest_updates is None
    assert len(above.probed) == 5
    assert above.updates_used == sum(one.updates for one in (*above.probed, *above.warmup.tried))
