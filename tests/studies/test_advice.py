"""The study of advice: ladders climbed, constants fitted, and how good they are, on outcomes that are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from advised import HERE, UNIGRAM, case_of, facts_of, landscape, outcome
from normscope.doctor.advise.probe import ProbeReading
from normscope.doctor.advise.rule import rule_of_table
from normscope.errors import UserError
from normscope_studies.advice import measuring
from normscope_studies.advice import measuring as warmup
from normscope_studies.advice import study as advice
from normscope_studies.advice import training as finder
from normscope_studies.advice.cases import FAMILIES, AdviceConfig, cases, rate_of
from normscope_studies.advice.fit import CaseProbe, NamedRate, fitted_probe, law_without, left_out, partly
from normscope_studies.advice.ladder import REGRET_NATS, TrainedCase, climb
from normscope_studies.advice.measuring import shortest
from normscope_studies.advice.tasks import MASKED, task_of
from normscope_studies.advice.training import held_out_nats, model_of, train_once
from normscope_studies.engine.pieces import Pieces


def known_of(best, stuck, **changes) -> TrainedCase:
    return TrainedCase(case=case_of(**changes), facts=facts_of(), outcomes=climb(1, landscape(best, stuck)))


def test_rates_are_a_factor_of_two_apart():
    assert [rate_of(step) for step in (-2, 0, 1, 10)] == [0.00025, 0.001, 0.002, 1.02]


@given(st.integers(-3, 5), st.integers(1, 6))
def test_the_climb_finds_the_best_rung_and_where_all_are_stuck(best, beyond):
    found = climb(1, landscape(best, best + beyond))
    assert list(found) == sorted(found)
    assert min(found, key=lambda step: found[step]["valid_nats"]) == best
    assert {best - 1, best + 1} <= set(found)
    known = TrainedCase(case=case_of(), facts=facts_of(), outcomes=found)
    assert known.stuck is None or math.log10(rate_of(best)) < known.stuck
    assert known.stuck is not None or beyond > 2
    assert known.learned


def test_the_best_rate_is_the_bottom_of_a_parabola():
    bowl = {step: outcome(3.0 + 0.1 * (step - 0.3) ** 2) for step in range(-3, 4)}
    known = TrainedCase(case=case_of(), facts=facts_of(), outcomes=bowl)
    assert known.best == pytest.approx(math.log10(1e-3 * 2**0.3), abs=1e-3)
    low, high = known.good
    assert low < known.best < high
    assert known.outcomes[0]["valid_nats"] < known.lowest_nats + REGRET_NATS
    assert math.log10(rate_of(1)) < high < math.log10(rate_of(2))


def test_a_loss_that_was_not_finite_is_stuck_and_nobody_is_stuck_below_the_best():
    found = {0: outcome(UNIGRAM), 1: outcome(3.0), 2: outcome(4.5), 3: outcome(None)}
    known = TrainedCase(case=case_of(), facts=facts_of(), outcomes=found)
    assert known.labels() == {1: False, 2: True, 3: True}
    assert known.stuck == pytest.approx(math.log10(rate_of(1)) + 0.5 * math.log10(2), abs=1e-3)


def test_who_learns_no_more_than_frequencies_has_not_learned():
    nothing = {step: outcome(UNIGRAM - 0.05) for step in range(3)}
    assert not TrainedCase(case=case_of(), facts=facts_of(), outcomes=nothing).learned


def planted(count=24):
    """Cases whose best rate falls with the width, in four families."""
    schemes, found = ("paper", "megatron", "normal-0.02", "rezero"), []
    for number in range(count):
        sgd, power = number % 3 == 0, number % 4
        name = "sgd" if sgd else "adam"
        found.append(
            TrainedCase(
                case=case_of(initialisation=schemes[number % 4], seed=number, optimizer=name),
                facts=facts_of(optimizer=name, width=16 * 2**power),
                outcomes=climb(1, landscape(5 - power + (3 if sgd else 0), 8 - power + (3 if sgd else 0))),
            )
        )
    return found


def test_the_law_of_other_families_foresees_planted_ladders():
    known = planted()
    off = [math.log10(law_without(rest)(one.facts)) - one.best for rest, left in left_out(known) for one in left]
    assert np.abs(off).mean() < 0.2  # a rung is 0.3
    with pytest.raises(UserError, match="too few cases learned"):
        law_without([])


def test_a_probe_that_shows_where_the_best_is_is_read_so():
    generator = np.random.default_rng(0)
    cases = []
    for one in planted():
        expected = one.best + 0.3 * generator.normal()
        reading = ProbeReading(
            optimizer=one.case.optimizer,
            lowest=one.best - expected - 0.2,
            gain=1.0,
            spread_below=0.0,
            spread=0.0,
            spread_above=0.0,
        )
        cases.append(CaseProbe(known=one, expected=expected, reading=reading))
    rule = fitted_probe(cases, 60, 200)
    assert np.abs([one.best(rule) - one.known.best for one in cases]).max() < 0.05
    assert rule.low <= 0.01
    assert rule.high >= -0.01
    assert rule.high - rule.low < 0.1
    assert rule.below > 0 < rule.above
    assert (rule.updates, rule.trial_updates, rule.horizon_updates) == (60, 12, 200)


def test_a_family_is_left_out_as_a_whole():
    for rest, left in left_out(planted(12)):
        assert len({one.case.family for one in left}) == 1
        assert {one.case.family for one in left}.isdisjoint(one.case.family for one in rest)


def test_what_trainings_say_before_their_end_comes_to_what_they_say_at_it():
    """Losses whose lowest place moves from a rung too high to the best one as the updates go on."""

    def early(best):
        bowl = {}
        for step in range(best - 3, best + 4):
            curve = [3.0 + 0.1 * (step - best - 2 * (1 - update / 200)) ** 2 for update in range(1, 201)]
            bowl[step] = outcome(curve[-1], curve)
        bowl[best + 3] = outcome(None, [4.0, None])
        return bowl

    schemes = ("paper", "megatron", "normal-0.02")
    known = [
        TrainedCase(case=case_of(initialisation=scheme, seed=best), facts=facts_of(), outcomes=early(best))
        for best, scheme in enumerate(schemes)
    ]
    found = partly(known, 200)
    assert [one.updates for one in found] == [10, 20, 30, 60, 100, 150, 200]
    assert found[0].ladder_updates == 70
    # All families are off alike, so that what is usual in the others makes good for it.
    assert all(one.within(2) == len(known) for one in found)
    assert found[-1].off == pytest.approx([0.0] * 3, abs=0.01)
    moved = [replace(known[0], outcomes=early(1) | {1: outcome(2.9, [2.9] * 200)}), *known[1:]]
    assert partly(moved, 200)[0].within(2) < len(known)


def test_a_named_rate_is_judged_by_decades_range_and_the_stuck_end():
    known = known_of(2, 5)
    assert NamedRate(known=known, rate=known.best + 0.29).within(2)
    assert not NamedRate(known=known, rate=known.best + 0.31).within(2)
    assert NamedRate(known=known, rate=known.stuck + 0.01).stuck
    assert not NamedRate(known=known, rate=known.best).stuck
    assert NamedRate(known=known, rate=known.best).good
    nothing = NamedRate(known=known, rate=None)
    assert (nothing.within(10), nothing.stuck, nothing.good) == (False, False, False)


@settings(max_examples=20)
@given(st.lists(st.floats(0.5, 8.0), min_size=14, max_size=60))
def test_the_finder_says_what_lightning_says(losses):
    tuner = pytest.importorskip("lightning.pytorch.tuner.lr_finder")
    rates = np.geomspace(1e-6, 1.0, len(losses)).tolist()
    mean, smoothed = 0.0, []
    for number, value in enumerate(losses):
        mean = 0.98 * mean + 0.02 * value
        smoothed.append(mean / (1 - 0.98 ** (number + 1)))
    found = tuner._LRFinder("exponential", 1e-6, 1.0, len(losses))
    found.results = {"lr": rates, "loss": smoothed}
    expected, ours = found.suggestion(), finder.lightning_suggestion(rates, losses)
    gradients = torch.gradient(
        torch.tensor(smoothed[10:-1], dtype=torch.float64), spacing=[torch.tensor(rates[10:-1], dtype=torch.float64)]
    )[0]
    # Lightning counts in float32, in which two places may be equally steep.
    assert gradients[rates[10:-1].index(ours)] <= gradients[rates[10:-1].index(expected)] + 1e-6


def test_the_steepest_fall_is_found():
    losses = [4.0] * 5 + [3.9, 2.0, 1.9, 1.9, 1.9]
    assert finder.steepest(list(range(1, 11)), losses) == 7
    assert finder.steepest([1.0], [4.0]) is None


@given(st.lists(st.booleans(), min_size=5, max_size=5))
def test_the_shortest_warm_up_is_found_by_halving(trains):
    lengths = (10, 20, 40, 80, 160)
    sorted_trains = sorted(trains)
    expected = next((length for length, good in zip(lengths, sorted_trains, strict=True) if good), None)
    assert shortest(lengths, lambda length: sorted_trains[lengths.index(length)]) == expected


def test_the_families_are_as_many_as_claimed_and_all_cases_differ():
    every = cases()
    assert len({case.family for case in every}) == len(FAMILIES) >= 12
    assert len({case.name for case in every}) == len(every)
    assert {case.architecture for case in every} == {"decoder", "encoder", "encoder-decoder"}
    assert {case.optimizer for case in every} >= {"adam", "adamw", "sgd", "radam", "lion"}
    assert len({case.initialisation for case in every}) == 3


def test_an_encoder_sees_all_but_what_is_masked():
    case = case_of(architecture="encoder")
    task = task_of(case, **HERE)
    model = task.model(1)
    seen = []
    model.embedding.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
    batch = task.batch(0)
    logits = batch.run(model)
    assert logits.shape[0] == len(seen[0]) == case.tokens
    masked = seen[0] == task.text.vocabulary
    assert int(masked.sum()) == math.ceil(MASKED * case.tokens)
    again = task_of(case, **HERE).batch(0)
    torch.testing.assert_close(again.loss(again.run(model)), batch.loss(logits))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("architecture", ["decoder", "encoder", "encoder-decoder"])
def test_a_training_learns_the_toy_language_and_is_the_same_each_time(architecture):
    case = case_of(architecture=architecture, width=32)
    first, second = (train_once(case, 4e-3, updates=12, **HERE) for _ in range(2))
    assert first == second
    assert len(first["train_nats"]) == 12
    task = task_of(case, **HERE)
    assert first["valid_nats"] < held_out_nats(task, model_of(case, task)) - 0.2
    assert 3 < first["unigram_nats"] < 6


def test_a_training_that_explodes_ends_there():
    found = train_once(case_of(optimizer="sgd"), 1e30, updates=12, **HERE)
    assert found["valid_nats"] is None
    assert len(found["train_nats"]) < 12


def test_the_study_as_a_whole(tmp_path, monkeypatch):
    """Only the long trainings are made up."""
    monkeypatch.setattr(measuring, "trainings", lambda *_: climb(1, landscape(2, 4)))
    monkeypatch.setattr(warmup, "at_rate", lambda *_, warmup_updates, **__: outcome(3.0 if warmup_updates > 8 else 4.6))
    smoke = advice.SCALES["smoke"].config
    config = replace(smoke, cases=smoke.cases[::2], processes=1, warmup_ladder=(10, 20))
    found = advice.run(config, Pieces(tmp_path))
    assert len(found.claims) == 9
    assert set(found.data["cases"]) == {case.name for case in config.cases}
    assert {one["shortest"] for one in found.data["warmups"]} == {10}
    assert found.data["early"][-1]["cases"] == len(config.cases)
    assert rule_of_table(found.data["rule"]).horizon_updates == config.updates
    again = Pieces(tmp_path)
    advice.run(config, again)
    assert again.made == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cases": advice.SCALES["smoke"].config.cases[:2]}, "at least three families"),
        ({"updates": 0}, "at least 1"),
        ({"warmup_ladder": (8, 4)}, "must rise"),
    ],
)
def test_what_cannot_be_asked(changes, message):
    with pytest.raises(ValueError, match=message):
        AdviceConfig(**{"cases": advice.SCALES["smoke"].config.cases} | changes)
