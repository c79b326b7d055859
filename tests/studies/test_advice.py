"""The study of advice: ladders climbed, rates named by rules, and what they cost, on outcomes that
are known.
"""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from advised import BIGRAM, HERE, UNIGRAM, case_of, facts_of, ladder_of, landscape, outcome
from normscope.choosing.law import normed_share
from normscope_studies.advice import looks, page, rules, study as advice, texts, training
from normscope_studies.advice.cases import OURS, AdviceConfig, cases, rate_of
from normscope_studies.advice.ladder import climb
from normscope_studies.advice.models import FOREIGN
from normscope_studies.advice.rules import Looked, NamedRate
from normscope_studies.advice.tasks import MASKED, baselines, task_of
from normscope_studies.engine.estimates import estimate
from normscope_studies.engine.pieces import Pieces


def test_rates_are_a_factor_of_two_apart():
    assert [rate_of(step) for step in (-2, 0, 1, 10)] == [0.00025, 0.001, 0.002, 1.02]


@given(st.integers(-6, 9), st.integers(1, 6))
def test_the_climb_ends_where_the_best_rung_has_two_on_either_side(best, beyond):
    found = climb(2, landscape(best, best + beyond))
    assert list(found) == sorted(found)
    assert len(found) >= 7
    assert min(found, key=lambda step: found[step]["valid_nats"]) == best
    assert {best - 2, best - 1, best + 1, best + 2} <= set(found)


def test_the_best_rate_is_the_bottom_of_a_parabola_and_of_both_seeds():
    one = ladder_of(2)
    assert one.best == pytest.approx(math.log10(rate_of(2)), abs=1e-3)
    # The other seed is better a rung higher, by more than the first is worse there.
    both = ladder_of(2, again={1: outcome(3.03), 2: outcome(3.1), 3: outcome(2.9)})
    assert both.best_step == 3
    assert both.lowest_nats == pytest.approx((3.03 + 2.9) / 2)
    assert math.log10(rate_of(2)) < both.best < math.log10(rate_of(4))


def test_what_a_rate_costs_is_a_share_of_what_the_best_gains():
    one = ladder_of(2, stuck=5)
    assert one.gain == pytest.approx(BIGRAM - 3.0)
    assert one.regret(3.01) == pytest.approx(0.01)
    assert one.regret(2.9) == 0
    assert one.regret(math.inf) == math.inf
    assert [one.stuck(loss) for loss in (3.1, UNIGRAM - 0.3, UNIGRAM, math.inf)] == [
        False,
        True,
        True,
        True,
    ]
    half = (math.log10(rate_of(2)) + math.log10(rate_of(3))) / 2
    assert one.at(half) == pytest.approx(3.015, abs=1e-3)
    assert one.at(-9.0) == one.nats(min(one.outcomes))
    assert one.at(9.0) == one.nats(max(one.outcomes))


def looked_at(best, **changes) -> Looked:
    facts = {key: changes[key] for key in ("optimizer", "width") if key in changes}
    return Looked(ladder=ladder_of(best, **changes), facts=facts_of(**facts), parameters=10_000)


def planted():
    """Cases whose best rate falls with the width and is eight times as high with SGD, none
    alike.
    """
    kinds = [
        ("decoder", "toy", "megatron"),
        ("encoder", "markov", "normal-0.02"),
        ("gpt2", "pieces", "its-own"),
    ]
    for number in range(24):
        model, text, scheme = kinds[number % 3]
        own = {"placement": "pre-ln" if model in OURS else "its-own", "initialisation": scheme}
        power, sgd = number % 4, number % 2
        sizes = {
            "width": 16 * 2**power,
            "optimizer": "sgd" if sgd else "adam",
            "blocks": 1 + number,
        }
        yield looked_at(5 - power + 3 * sgd, model=model, text=text, **own, **sizes)


def test_rules_are_fitted_to_cases_that_share_nothing():
    every = list(planted())
    off = [rules.known_rate(one, every) - one.ladder.best for one in every]
    assert np.abs(off).mean() < 0.25  # a rung is 0.3
    assert all(one.case.apart(other.case) for one in every for other in rules.apart(one, every))
    alone = [one for one in every if one.case.model == "decoder"]
    assert rules.naive_rate(every[0], alone) is None
    naive = rules.naive_rate(every[0], every)
    own = [
        one.ladder.best for one in every if one.case.model != "decoder" and one.optimizer == "adam"
    ]
    assert naive == pytest.approx(
        sorted(own)[len(own) // 2 - 1] / 2 + sorted(own)[len(own) // 2] / 2
    )


def test_the_best_constant_is_the_rung_that_costs_least():
    several = [looked_at(best, blocks=2 + place) for place, best in enumerate((2, 3, 3, 3, 7))]
    assert rules.hindsight_rate(several[0], several) == pytest.approx(math.log10(rate_of(3)))


def test_the_law_of_steps_is_that_of_its_paper():
    # Table 1 of arXiv:2503.04715: η = 1.79 N^-0.713 D^0.307; a billion parameters and a hundred
    # billion tokens.
    assert 10 ** rules.step_law(10**9, 10**11) == pytest.approx(1.79 * 1e9**-0.713 * 1e11**0.307)


def test_a_rule_loses_less_than_another_by_the_mean_of_what_each_loses():
    """The interval against the jackknife written out: three families of one case each."""
    three = list(planted())[:3]
    lost = {"ours": (0.1, 0.2, 0.0), "theirs": (0.2, 0.1, 0.0)}
    named = {
        who: [
            NamedRate(looked=one, rate=-3.0, nats=3.0 + nats)
            for one, nats in zip(three, of, strict=True)
        ]
        for who, of in lost.items()
    }
    assert len({one.case.family for one in three}) == 3
    found = rules.less_than(named["ours"], named["theirs"])
    shares = np.subtract(*lost.values())  # the gain is one nat
    assert found.mean == pytest.approx(shares.mean(), abs=1e-9)
    assert found.half_width == pytest.approx(4.303 * shares.std(ddof=1) / math.sqrt(3), rel=1e-3)
    assert rules.less_than(named["ours"][:1] * 2, named["theirs"][:1]).mean == pytest.approx(-0.1)


def test_a_look_goes_on_with_what_was_lowest_so_far():
    one = looked_at(2)
    early = {step: [5.0 - 0.1 * step] * 60 + [4.0] * 940 for step in one.ladder.outcomes}
    outcomes = {
        step: {**seen, "train_nats": early[step]} for step, seen in one.ladder.outcomes.items()
    }
    one = replace(one, ladder=replace(one.ladder, outcomes=outcomes))
    chosen = rules.compared_at(one, 50)
    assert chosen.rate == pytest.approx(math.log10(rate_of(max(outcomes))))
    assert chosen.nats == one.ladder.nats(max(outcomes))
    assert rules.compared_at(one, 50, [0, 1]).rate == pytest.approx(math.log10(rate_of(1)))
    # One that broke is never chosen.
    broken = {**outcomes, max(outcomes): {**outcomes[max(outcomes)], "train_nats": [1.0] * 49}}
    left = replace(one, ladder=replace(one.ladder, outcomes=broken))
    assert rules.compared_at(left, 50).rate == pytest.approx(math.log10(rate_of(max(outcomes) - 1)))


def test_a_wrong_rate_costs_what_its_training_lost():
    several = list(planted())
    for rungs in rules.OFF:
        found = rules.off_by(several, rungs)
        # Every ladder has two rungs on either side of its best.
        assert len(found) == len(several) or abs(rungs) == 3
        # The bowl: 0.03 nats for the square of the rungs, of a gain of one nat.
        assert all(one.regret == pytest.approx(0.03 * rungs**2) for one in found)
        assert all(
            one.rate == pytest.approx(one.looked.ladder.best + rungs * math.log10(2), abs=2e-3)
            for one in found
        )


def test_three_rates_lie_about_the_median_of_others():
    every = list(planted())
    for one in every[:6]:
        low, middle, high = rules.about_naive(one, every)
        assert (low + 1, high - 1) == (middle, middle)
        assert (
            abs(math.log10(rate_of(middle)) - rules.naive_rate(one, every))
            <= math.log10(2) / 2 + 1e-3
        )
    assert (
        rules.about_naive(every[0], [one for one in every if one.case.model == "decoder"]) is None
    )


def test_claims_of_one_kind_are_judged_together():
    """One of two is sure alone, and not beside eleven that tell nothing."""
    sure = estimate([-0.1, -0.12, -0.02, -0.15, -0.01])
    unsure = estimate([-0.1, 0.1, 0.05, -0.05, 0.01])
    three = ("Three rates", "Three rates lose", "one")
    (alone,) = advice.less_claims({three: sure})
    assert alone.verdict == "reproduced"
    among = {three: sure} | {
        (f"All after {updates}", "They lose", "one"): unsure for updates in range(10, 21)
    }
    assert {claim.verdict for claim in advice.less_claims(among)} == {"undecided"}


def test_a_warmup_is_judged_by_the_best_of_those_that_were_tried():
    one = looked_at(2)
    warmups = {one.case: {0.0: 3.2, 0.01: 3.15, 0.08: 3.05}}
    found = page.by_warmup([one], warmups)
    there = {share: several[0].regret for (group, share), several in found.items() if several}
    assert there == pytest.approx({0.0: 0.15, 0.01: 0.1, 0.08: 0.0})
    assert {group for (group, _), several in found.items() if several} == {
        "residual sums are not normed"
    }
    normed = replace(one, facts=facts_of(normed_sums=1.0))
    apart = page.by_warmup([one, normed], warmups)
    assert [several[0].looked for (group, _), several in apart.items() if page.NORMED[group]] == [
        normed
    ] * 3


def test_optimisers_without_a_rate_learn():
    pytest.importorskip("prodigyopt")
    pytest.importorskip("schedulefree")
    case = case_of(text="arithmetic")
    found = {
        package: [
            training.train_package(case, package=package, updates=80, **HERE) for _ in range(2)
        ]
        for package in training.PACKAGES
    }
    assert all(first == second for first, second in found.values())
    assert (
        found["schedule-free"][0]["valid_nats"] < found["schedule-free"][0]["train_nats"][0] - 0.05
    )
    # Prodigy's rate begins at a millionth and grows: so few updates hardly move it.
    assert abs(found["prodigy"][0]["valid_nats"] - found["prodigy"][0]["train_nats"][0]) < 0.2


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
    expected, ours = found.suggestion(), looks.lightning_suggestion(rates, losses)
    gradients = torch.gradient(
        torch.tensor(smoothed[10:-1], dtype=torch.float64),
        spacing=[torch.tensor(rates[10:-1], dtype=torch.float64)],
    )[0]
    # Lightning counts in float32, in which two places may be equally steep.
    assert gradients[rates[10:-1].index(ours)] <= gradients[rates[10:-1].index(expected)] + 1e-6


def test_the_steepest_fall_is_found():
    losses = [4.0] * 5 + [3.9, 2.0, 1.9, 1.9, 1.9]
    assert looks.steepest(list(range(1, 11)), losses) == 7
    assert looks.steepest([1.0], [4.0]) is None


def test_cases_are_as_many_as_claimed_and_mix_families():
    every = cases()
    families = [case.family for case in every]
    assert len({case.name for case in every}) == len(every) >= 60
    assert len(set(families)) >= 15
    assert len(set(families[: len(set(families))])) == len(set(families))
    assert all(one != other for one, other in pairwise(families))
    assert sum(case.model in FOREIGN for case in every) >= 15
    assert {case.model for case in every} == {*OURS, *FOREIGN}
    assert {case.optimizer for case in every} == {"adam", "adamw", "muon", "sgd", "lion"}
    assert {case.decay for case in every} == {"cosine", "linear", "wsd", "inverse-sqrt"}
    assert (sum(case.reach > 2 for case in every), sum(case.reach > 3 for case in every)) == (17, 6)
    # A rule for any of them has some others of its optimiser to be fitted to.
    assert all(
        any(one.apart(other) and one.optimizer == other.optimizer for other in every)
        for one in every
    )


def test_a_usual_warmup_is_longer_where_sums_are_normed():
    own = {case.placement: case.usual_warmup_share for case in cases() if case.model in OURS}
    assert own == {name: 0.08 if normed_share(name) > 0.5 else 0.01 for name in own}
    others = {
        case.model for case in cases() if case.model in FOREIGN and case.usual_warmup_share == 0.08
    }
    assert others == {"bert", "torch-post", "torch-encoder"}


def test_a_text_that_a_rule_makes_is_told_by_the_two_before():
    for kind, most in (("arithmetic", 0.3), ("markov", 0.55)):
        ids = texts.running(kind, "").train.numpy()
        size = int(ids.max()) + 1
        before = ids[:-2] * size + ids[1:-1]
        pairs = np.zeros((size**2, size))
        np.add.at(pairs, (before, ids[2:]), 1)
        share = pairs / np.maximum(1, pairs.sum(1, keepdims=True))
        entropy = -(pairs * np.log(np.where(share > 0, share, 1))).sum() / pairs.sum()
        assert entropy < most
        assert baselines(task_of(case_of(text=kind), **HERE, seed=1))["bigram_nats"] > entropy + 1


def test_an_encoder_sees_all_but_what_is_masked():
    case = case_of(model="encoder")
    task = task_of(case, **HERE, seed=1)
    model, seen = task.model(1), []
    model.embedding.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
    batch = task.batch(0)
    assert batch.run(model).shape[0] == len(seen[0]) == case.tokens
    masked = seen[0] == texts.running("toy", "").vocabulary
    assert int(masked.sum()) == math.ceil(MASKED * case.tokens)
    assert bool((masked == batch.hidden).all())
    known = baselines(task)
    assert known["bigram_nats"] < known["unigram_nats"] < MASKED * 5.5


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("model", [*OURS, *FOREIGN])
def test_a_training_learns_and_is_the_same_each_time(model):
    """And the doctor finds the stream of each."""
    pytest.importorskip("transformers")
    ours = {"placement": "pre-ln", "initialisation": "normal-0.02"} if model in OURS else {}
    text = {"text": "digits", "tokens": 512} if model == "vit" else {"text": "arithmetic"}
    case = case_of(
        **{"model": model, **text, "placement": "its-own", "initialisation": "its-own"} | ours
    )
    asked = {"updates": 50, "warmup_updates": 3, "seed": 1, **HERE}
    first, second = (training.train_once(case, 4e-3, **asked) for _ in range(2))
    assert first == second
    assert len(first["train_nats"]) == 50
    task = task_of(case, **HERE, seed=1)
    # Images take more updates than are made here.
    least = -0.01 if model == "vit" else 0.01
    assert first["valid_nats"] < training.held_out_nats(task, task.model(1)) - least
    seen = looks.facts_about(case, **HERE)
    assert seen["facts"]["width"] == case.width
    assert seen["facts"]["sublayers"] in (2, 5)
    assert 0 < seen["parameters"] < 40_000


def test_a_zero_head_starts_with_no_answer():
    case = case_of(model="nanogpt", placement="its-own", initialisation="zero-head")
    task = task_of(case, **HERE, seed=1)
    assert not bool(task.batch(0).run(task.model(1)).any())


def test_a_training_that_explodes_ends_there():
    asked = {"updates": 12, "warmup_updates": 0, "seed": 1, **HERE}
    found = training.train_once(case_of(optimizer="sgd"), 1e30, **asked)
    assert found["valid_nats"] is None
    assert len(found["train_nats"]) < 12


def test_a_training_follows_its_schedule(monkeypatch):
    rates: list[float] = []

    def keep(task, model, optimizer, planned):
        rates.extend(planned)
        return []

    monkeypatch.setattr(training, "losses_of", keep)
    training.train_once(case_of(), 2e-3, updates=100, warmup_updates=10, seed=1, **HERE)
    assert rates[:10] == pytest.approx([2e-4 * number for number in range(1, 11)])
    assert rates[54] == pytest.approx(2e-3 * (0.1 + 0.9 * (1 + math.cos(math.pi * 44 / 90)) / 2))
    assert rates[-1] == pytest.approx(2e-4, rel=0.02)


def test_the_study_as_a_whole(tmp_path):
    """Small, and everything is trained."""
    config = replace(advice.SCALES["smoke"], processes=1)
    found = advice.run(config, Pieces(tmp_path))
    # Two shares of known rates, four looks, one each of known rates beside the median and the usual
    # warm-up, and one of the two warm-ups for each kind of sums that learned.
    assert len(found.claims) in (9, 10)
    assert [one.title for one in found.tables] == [
        "What a training at the named rate loses, each rule by constants of cases that share "
        "nothing with it",
        "What a wrong rate costs, in % of the best's gain",
        "How long one must look: trainings compared after so many updates, of which the best goes "
        "on",
        "Warm-ups at the best rate, against the best of them, in % of the gain",
        "What warm-ups lose at the best rate, in % of the gain",
        "Every case: the best rate, and what each rule loses, in % of the gain",
    ]
    assert set(found.data["cases"]) == {case.name for case in config.cases}
    learned = [case for case in found.data["cases"].values() if case["facts"]]
    assert len(learned) >= 2
    for case in learned:
        first = case["ladders"][0]
        assert [one["updates"] for one in case["ladders"]] == [config.updates]
        lowest = first["lowest_nats"]
        gain = first["bigram_nats"] - lowest
        gain = gain if gain > 0.1 else first["unigram_nats"] - lowest
        for named in case["named"].values():
            assert named["regret"] == pytest.approx(max(0.0, named["nats"] - lowest) / gain)
    again = Pieces(tmp_path)
    advice.run(config, again)
    assert again.made == []


def test_a_usual_warmup_costs_what_it_is_above_the_best():
    one = looked_at(2)
    assert page.lost_by_usual_warmup(one, {0.0: 3.2, 0.01: 3.15, 0.08: 3.05}) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cases": advice.SCALES["smoke"].cases[:2]}, "at least three families"),
        ({"updates": 10}, "updates"),
        ({"warmup_shares": (0.7,)}, "must lie in"),
    ],
)
def test_what_cannot_be_asked(changes, message):
    with pytest.raises(ValueError, match=message):
        AdviceConfig(**{"cases": advice.SCALES["smoke"].cases} | changes)
