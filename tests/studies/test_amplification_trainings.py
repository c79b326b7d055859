"""Trainings that are foretold: what is read of known ones, what is looked at, and planted laws that are found."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from advised import HERE, UNIGRAM, case_of, facts_of, landscape, outcome
from normscope.doctor.advise.rule import ModelFacts
from normscope.doctor.advise.short_run import ShortRun
from normscope.errors import UserError
from normscope.theory.predict import ModelSetting, Update, predict
from normscope_studies.advice import measuring
from normscope_studies.advice import measuring as warmups
from normscope_studies.advice.cases import FAMILIES, cases, rate_of
from normscope_studies.advice.ladder import TrainedCase, climb
from normscope_studies.amplification_trainings.foretelling import (
    foretold,
    gained,
    left_out_foretold,
    odds,
    skill,
    upper,
    without_constants,
)
from normscope_studies.amplification_trainings.measure import (
    changes_along,
    known_in,
    predicted_change,
    trials_at,
    vocabulary_of,
)
from normscope_studies.amplification_trainings.page import SETS
from normscope_studies.amplification_trainings.study import HELD_OUT, SCALES, AmplificationTrainingsConfig, run
from normscope_studies.amplification_trainings.ways import FACTS, FORMULA_ALONE, MEASURED, PREDICTED, CaseLook, ways
from normscope_studies.engine.pieces import Pieces

RESULTS = Path(__file__).parents[2] / "results/advice/results.json"
SMALL = case_of()


def planted(count=24):
    """Trainings stuck from the rate on at which the predicted change is 1; the measured change is noise."""
    rng, schemes, found = np.random.default_rng(0), ("paper", "megatron", "normal-0.02", "rezero"), []
    for number in range(count):
        edge = int(rng.integers(3, 8))
        case = replace(SMALL, initialisation=schemes[number % 4], seed=number)
        known = TrainedCase(case=case, facts=facts_of(), outcomes=climb(1, landscape(edge - 2, edge)))
        half_way = rate_of(edge) / math.sqrt(2)
        trials = {
            step: ShortRun(rate=rate_of(step), warmup_updates=0, losses=(5.0, 4.0), spreads=(1.0, 0.5))
            for step in known.outcomes
        }
        noise = 10 ** rng.normal()
        found.append(
            CaseLook(
                known=known,
                predicted=half_way**-2,
                rates=(1e-6, 1e3),
                changes=(1e-12 * noise, 1e6 * noise),
                trials=trials,
            )
        )
    return found


WAYS = {way.name: way for way in ways(2)}


def test_the_known_trainings_are_those_of_the_advice():
    data = json.loads(RESULTS.read_text(encoding="utf-8"))
    known = known_in(RESULTS)
    assert len(known) == len(data["cases"])
    for one in known:
        table = data["cases"][one.case.name]
        assert 10**one.best == pytest.approx(table["best_rate"], rel=1e-4)
        assert one.learned == table["learned"]
        assert one.stuck is None or 10**one.stuck == pytest.approx(table["stuck_rate"], rel=1e-4)


@pytest.mark.parametrize("text", ["", "[]", '{"settings": {"cases": [{"text": "toy"}]}, "cases": {}}'])
def test_another_file_is_refused_by_name(tmp_path, text):
    file = tmp_path / "results.json"
    with pytest.raises(UserError, match=r"results\.json.*--set known=FILE"):
        known_in(file)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"is not a results\.json"):
        known_in(file)


def test_held_out_cases_share_no_family_and_hardly_a_placement_with_those_of_the_advice():
    held, known = cases(HELD_OUT), cases(FAMILIES)
    assert not {one.family for one in held} & {one.family for one in known}
    assert {one.placement for one in held} & {one.placement for one in known} == {"post-ln", "pre-ln"}
    assert {one.optimizer for one in held} == {"adam", "adamw", "sgd", "radam", "lion", "muon"}
    assert len({one.name for one in held}) == len(held)


def test_the_prediction_is_theory_s_of_a_stack_as_deep_as_both():
    model = ModelSetting(
        stack="encoder", blocks=6, width=32, ffn_width=64, heads=2, tokens=16, vocabulary=50, setting="normal-0.02"
    )
    change = predict("pre-ln", model, update=Update(optimizer="adam", rate=1.0))["encoder"].change
    case = replace(SMALL, architecture="encoder-decoder", blocks=3, width=32)
    assert predicted_change(case, vocabulary=50) == change.output
    assert predicted_change(replace(SMALL, placement="attn-res"), vocabulary=50) is None


def test_the_first_update_s_change_goes_as_the_square_of_a_small_rate():
    found = changes_along(SMALL, **HERE)
    slope = math.log(found["changes"][3] / found["changes"][0]) / math.log(found["rates"][3] / found["rates"][0])
    assert slope == pytest.approx(2.0, abs=0.02)
    assert found["changes"][-1] > 1
    assert vocabulary_of(SMALL, **HERE) > 20


def test_short_trainings_start_alike_at_every_rate_and_end_where_they_are_not_finite():
    case = replace(SMALL, optimizer="sgd")
    low, high, again = trials_at(case, [0, 60, 0], updates=4, **HERE)
    assert low == again
    assert low["losses"][0] == high["losses"][0]
    assert len(low["losses"]) == 4
    assert len(high["losses"]) < 4


def test_a_planted_law_is_found_by_the_way_that_knows_it_and_by_no_other():
    looked = planted()
    found = {name: left_out_foretold(way, looked) for name, way in WAYS.items()}
    best, blind = skill(found[PREDICTED]), skill(found[FORMULA_ALONE])
    assert float(best.upper.mean) == pytest.approx(1.0)
    assert best.rank[0] > 0.95
    # Regressions with a penalty do not reach the sharp edge that was planted, a rung's factor of 2.
    assert best.factor < 1.5
    assert (best.within_3, best.bounded) == (24, 24)
    assert float(blind.upper.mean) < 0.9
    assert float(best.explained.mean) > float(blind.explained.mean) + 0.2
    more = gained(found[PREDICTED], found[FORMULA_ALONE], upper)
    assert more.low > 0
    none = gained(found[MEASURED], found[FORMULA_ALONE], upper)
    assert none.low < 0 < none.high


def test_one_number_alone_foretells_without_constants():
    looked = planted()
    assert float(skill(without_constants(WAYS[PREDICTED], looked)).upper.mean) == pytest.approx(1.0)
    assert without_constants(WAYS[FACTS], looked) == []


def test_where_theory_does_not_follow_the_case_is_left_out_of_that_way_alone():
    looked = planted()
    dark = [replace(one, predicted=None) if at < 5 else one for at, one in enumerate(looked)]
    assert len(left_out_foretold(WAYS[PREDICTED], dark)) == 19
    assert len(left_out_foretold(WAYS[MEASURED], dark)) == 24
    assert foretold(WAYS[PREDICTED], looked, dark[:5]) == []


class Seen(NamedTuple):
    """As the doctor's rules are asked."""

    optimizer: str
    numbers: dict[str, float]

    def values(self):
        return self.numbers


def test_odds_are_the_regression_s_and_adam_has_no_constant():
    looked = planted()
    lions = [
        replace(
            one,
            known=replace(
                one.known,
                case=replace(one.known.case, optimizer="lion"),
                facts=replace(one.known.facts, optimizer="lion"),
            ),
        )
        if at % 2
        else one
        for at, one in enumerate(looked)
    ]
    found = odds(WAYS[PREDICTED], lions)
    assert found.optimizers["adam"] == found.optimizers["adamw"] == found.optimizers["muon"] == 0
    own = foretold(WAYS[PREDICTED], lions, lions)
    values = [
        found(Seen(one.looked.known.case.optimizer, WAYS[PREDICTED].features(one.looked, step)))
        for one in own
        for step in one.steps
    ]
    assert values == pytest.approx([score for one in own for score in one.scores])


def test_edges_lie_between_rungs_and_half_a_rung_beyond_the_ladder():
    one = left_out_foretold(WAYS[PREDICTED], planted())[0]
    count, half = len(one.scores), 0.5 * math.log10(2)
    first, last = (math.log10(rate_of(step)) for step in (one.steps[0], one.steps[-1]))
    assert replace(one, scores=(1.0,) * count).edge == pytest.approx(first - half)
    assert replace(one, scores=(-1.0,) * count).edge == pytest.approx(last + half)
    middle = replace(one, scores=(-1.0, *(1.0,) * (count - 1))).edge
    assert middle == pytest.approx(0.5 * (first + math.log10(rate_of(one.steps[1]))))


def test_the_study_as_a_whole(tmp_path, monkeypatch):
    """Only the long trainings are made up."""
    made_up = climb(1, landscape(2, 4))
    monkeypatch.setattr(measuring, "trainings", lambda *_: made_up)
    monkeypatch.setattr(
        warmups, "at_rate", lambda *_, warmup_updates, **__: outcome(3.0 if warmup_updates > 8 else 4.6)
    )
    smoke: AmplificationTrainingsConfig = SCALES["smoke"].config
    known = tmp_path / "known.json"
    small = [replace(SMALL, initialisation=scheme, placement=name) for scheme, name in PLANTED]
    table = {
        "settings": {"cases": [{key: getattr(one, key) for key in one.__dataclass_fields__} for one in small]},
        "cases": {
            one.name: {
                "facts": {name: getattr(facts_of(), name) for name in ModelFacts.__dataclass_fields__},
                "unigram_nats": UNIGRAM,
                "trainings": [
                    {"rate": rate_of(step), "valid_nats": made["valid_nats"]}
                    for step, made in climb(1, landscape(2, 4 + at)).items()
                ],
            }
            for at, one in enumerate(small)
        },
    }
    known.write_text(json.dumps(table), encoding="utf-8")
    config = replace(smoke, cases=smoke.cases[::2], known=str(known), processes=1)
    found = run(config, Pieces(tmp_path))
    assert found.claims[0].name == "predicted change: trainings that are stuck"
    assert set(found.data["cases"]) == {case.name for case in config.cases}
    assert set(found.data["skills"]) == set(SETS)
    assert set(found.data["ways"]) == set(WAYS)
    assert found.data["early_rule"]["updates"] == config.trial_updates
    again = Pieces(tmp_path)
    run(config, again)
    assert again.made == []


PLANTED = (("normal-0.02", "pre-ln"), ("xavier-uniform", "post-ln"), ("megatron", "pre-ln"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trial_updates": 1}, "more than 1"),
        ({"trial_updates": 41}, "no more than updates"),
        ({"updates": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_asked(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SCALES["smoke"].config, **changes)
