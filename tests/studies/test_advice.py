"""The study of advice: ladders climbed, constants fitted, and how good they are, on outcomes that are known."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.doctor.advise.calibration import Calibration, Facts
from normscope.errors import UserError
from normscope.studies.advice import search as advice_search
from normscope.studies.advice import study as advice
from normscope.studies.advice.cases import TENTH, Case, rate_of
from normscope.studies.advice.claims import claims
from normscope.studies.advice.config import SCALES, AdviceConfig
from normscope.studies.advice.fit import Known, fitted
from normscope.studies.advice.judge import area_under_curve, judged, separation, separation_interval
from normscope.studies.advice.search import climb, diverged, learned
from normscope.studies.advice.training import train_once
from normscope.studies.advice.warmup import Warmup, points, shortest
from normscope.studies.protocol.pieces import Pieces

UNIGRAM = 4.6


def outcome(nats):
    return {"valid_nats": nats, "unigram_nats": UNIGRAM, "train_nats": []}


def ladder(largest, lowest=-30):
    """What learns up to a step, and ends at chance above it; below `lowest` it is too slow to."""

    def train(step):
        if step < lowest:
            return outcome(UNIGRAM + 0.5 * (lowest - step))
        return outcome(3.0 if step <= largest else UNIGRAM + 0.05)

    return train


def test_rates_are_a_third_of_a_decade_apart():
    assert [rate_of(step) for step in (-6, -5, -4, -3)] == [0.01, 0.0215, 0.0464, 0.1]


@given(st.integers(-8, 11), st.integers(-12, -4))
def test_the_climb_finds_the_largest_that_learns_and_tries_a_tenth_of_every_failure(above, start):
    largest = min(-1, start + above)
    found = climb(start, 0, ladder(largest))
    assert list(found) == sorted(found)
    assert max(step for step, one in found.items() if learned(one)) == largest
    failed = [step for step, one in found.items() if not learned(one)]
    assert all(step - TENTH in found for step in failed)
    assert len(failed) >= (2 if largest <= -2 else 1)


def test_what_is_only_slow_is_climbed_past():
    found = climb(-10, 0, ladder(-3, lowest=-6))
    assert max(step for step, one in found.items() if learned(one)) == -3


def test_diverged_is_worse_than_a_tenth_and_no_better_than_chance():
    assert diverged(outcome(UNIGRAM), outcome(UNIGRAM - 0.1))
    assert diverged(outcome(None), outcome(9.0))
    assert not diverged(outcome(UNIGRAM - 0.01), outcome(3.0))
    assert not diverged(outcome(6.0), outcome(6.5))  # slow, not diverged
    assert not diverged(outcome(None), outcome(None))


TRUE = Calibration(
    collapse=-0.5,
    depth=-0.6,
    rise=-0.2,
    optimizers={"adam": 0.0, "adamw": 0.0, "lion": -0.6},
    deviation=0.1,
    margin=0.3,
    factor=2.0,
    warmup=0.0,
    warmup_slope=0.0,
)


def known_case(number, optimizer="adam"):
    """A case whose boundary is just where TRUE has it."""
    generator = np.random.default_rng(number)
    collapse = None if number % 3 == 0 else float(generator.uniform(-3, -1.2))
    facts = Facts(
        optimizer=optimizer,
        reach=-0.8,
        collapse=collapse,
        rise=float(generator.uniform(-1, 0)),
        sublayers=int(generator.integers(10, 60)),
    )
    largest = math.floor((TRUE.foreseen(facts)) * TENTH)
    case = Case(placement="pre-ln", blocks=2, width=32, optimizer=optimizer, seed=number)
    return Known(case=case, facts=facts, outcomes=climb(largest - 1, largest + 2, ladder(largest)))


def test_the_fit_finds_the_constants_that_made_the_outcomes():
    cases = [known_case(number, "lion" if number % 5 == 0 else "adam") for number in range(200)]
    found = fitted(cases)
    assert found.collapse == pytest.approx(TRUE.collapse, abs=0.05)
    assert found.depth == pytest.approx(TRUE.depth, abs=0.12)
    assert found.rise == pytest.approx(TRUE.rise, abs=0.05)
    assert found.optimizers["lion"] == pytest.approx(-0.6, abs=0.08)
    # The ladder's steps alone spread boundaries evenly over ± 1/6.
    assert found.margin == pytest.approx(0.95 / 3 - 1 / 6, abs=0.04)
    assert found.factor < 10 ** (found.margin + 0.2)
    assert found.deviation < 0.1


def test_the_fitted_chance_separates_and_the_safe_rate_is_near():
    constants = fitted([known_case(number) for number in range(100)])
    cases = []
    for number in range(100, 160):
        one = known_case(number)
        safe = constants.safe_rate(one.facts)
        cases.append(judged(one, constants, outcome(3.0 if math.log10(safe) <= TRUE.foreseen(one.facts) else 5.0)))
    area, bad, good = separation(cases)
    assert area > 0.97
    assert bad > 30
    assert good > 60
    assert np.mean([one.safe_trained for one in cases]) > 0.9
    assert np.mean([one.within_factor for one in cases]) > 0.9


@pytest.mark.parametrize(
    ("trained", "cases", "verdict"),
    [(100, 100, "reproduced"), (20, 20, "undecided"), (32, 35, "undecided"), (30, 35, "not reproduced")],
)
def test_a_share_of_cases_is_judged_by_its_interval(trained, cases, verdict):
    one = known_case(1)
    safe = [judged(one, TRUE, outcome(3.0 if number < trained else UNIGRAM + 1)) for number in range(cases)]
    assert claims(safe)[1].verdict == verdict
    assert claims(safe)[1].found.startswith(f"{trained} of {cases} (")


def test_the_interval_of_the_area_is_over_cases():
    """Ten cases that say the same leave no doubt; ten that disagree do, and one alone has no interval."""
    constants = fitted([known_case(number) for number in range(100)])
    alike = [judged(known_case(1), constants, outcome(3.0)) for _ in range(10)]
    assert separation_interval(alike).half_width == pytest.approx(0, abs=1e-9)
    others = [judged(known_case(number), replace(constants, rise=5.0), outcome(3.0)) for number in range(10)]
    assert separation_interval(others).half_width > 0.01
    assert separation_interval(others).mean == pytest.approx(separation(others)[0], abs=0.05)


def test_a_safe_rate_that_fails_is_not_counted_as_trained():
    one = known_case(1)
    assert one.largest is not None
    found = judged(one, TRUE, outcome(UNIGRAM + 1))
    assert not found.safe_trained
    assert found.largest_rate == rate_of(one.largest)
    assert judged(one, replace(TRUE, margin=2.0), outcome(3.0)).within_factor is False


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_the_area_is_the_share_of_pairs_in_order(pairs):
    scores, bad = [s for s, _ in pairs], [b for _, b in pairs]
    wins = [(s > t) + (s == t) / 2 for s, b in pairs if b for t, c in pairs if not c]
    area = area_under_curve(scores, bad)
    assert math.isnan(area) if not wins else area == pytest.approx(sum(wins) / len(wins))


@given(st.lists(st.booleans(), min_size=1, max_size=8).map(sorted))
def test_the_shortest_warm_up_is_found_by_halving(trains):
    ladder_ = tuple(2**k for k in range(len(trains)))
    asked = []

    def train(updates):
        asked.append(updates)
        return trains[ladder_.index(updates)]

    found = shortest(ladder_, train)
    assert found == next((w for w, good in zip(ladder_, trains, strict=True) if good), None)
    assert len(asked) <= math.ceil(math.log2(len(trains) + 1))


def test_a_warm_up_that_was_not_found_counts_as_longer_than_all_that_were_tried():
    found = [Warmup(name="", rate=0.1, beyond=1 / 3, shortest=4), Warmup(name="", rate=1.0, beyond=1.0, shortest=None)]
    assert points(found, (2, 4, 8)) == [(1 / 3, 4), (1.0, 16)]


def test_too_few_cases_with_a_boundary_are_refused():
    with pytest.raises(UserError, match="1 of 1 cases have both a rate that learned and a larger one"):
        fitted([known_case(1)])


def test_cases_are_for_fitting_or_for_judging():
    config = SCALES["cpu"].config
    assert not set(config.calibration) & set(config.evaluation)
    assert {case.placement for case in config.evaluation} - {case.placement for case in config.calibration}
    with pytest.raises(ValueError, match="both calibration and evaluation"):
        AdviceConfig(calibration=config.calibration, evaluation=config.calibration, warmups=())


def test_the_whole_study_on_trainings_that_follow_the_rule(tmp_path, monkeypatch):
    """Every training ends as TRUE has it: then the study finds constants, near safe rates, and says so."""
    facts = {}

    def about(case, max_tokens):
        facts[case] = replace(known_case(case.seed).facts, optimizer=case.optimizer)
        return {"facts": asdict(facts[case])}

    def train(case, rate, *, updates, max_tokens, warmup_updates=0):
        beyond = math.log10(rate) - TRUE.foreseen(facts[case])
        return outcome(3.0 if beyond < 0 or warmup_updates >= 10 * 10**beyond else UNIGRAM + 0.05)

    monkeypatch.setattr(advice, "facts_about", about)
    monkeypatch.setattr(advice_search, "train_once", train)
    cases = tuple(Case(placement="pre-ln", blocks=2, width=32, seed=seed) for seed in range(60))
    config = AdviceConfig(calibration=cases[:40], evaluation=cases[40:], warmups=cases[:6], processes=1)
    found = advice.run(config, Pieces(tmp_path))
    # Twenty of twenty do not show that it is 95 % or more of all: their interval begins at 84 %.
    assert [claim.verdict for claim in found.claims] == ["reproduced", "undecided", "undecided"]
    assert found.data["calibration"]["collapse"] == pytest.approx(TRUE.collapse, abs=0.15)
    assert found.data["evaluation"]["cases"] == 20
    assert found.data["evaluation"]["safe_trained"] >= 19
    assert len(found.data["warmups"]) == 12
    assert 0.3 < found.data["calibration"]["warmup_slope"] < 1.7
    failures = next(table for table in found.tables if table.title == "Where the advice failed")
    assert len(failures.rows) == 20 - found.data["evaluation"]["both"]
    again = Pieces(tmp_path)
    advice.run(config, again)
    assert again.made == []


def test_a_short_training_learns_at_a_fair_rate_and_explodes_at_an_absurd_one():
    case = Case(placement="pre-ln", blocks=1, width=32)
    options = {"updates": 25, "max_tokens": 512}
    fair, again = (train_once(case, 1e-2, **options) for _ in range(2))
    assert fair == again
    assert fair["valid_nats"] < fair["train_nats"][0] - 1
    slow = train_once(case, 1e-2, **options, warmup_updates=10_000)
    assert slow["valid_nats"] > fair["valid_nats"] + 1
    absurd = train_once(replace(case, optimizer="sgd"), 1e3, **options)
    assert absurd["valid_nats"] is None or absurd["valid_nats"] > 10
