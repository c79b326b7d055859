"""Trainings that learned little at a rate above the usual range, and healthy ones, which are left
alone at whatever rate. rescue_losses.json has losses of `normscope study rescue`, seed 1, whose
text has an entropy of single tokens of 3.144 nats: four that failed, and five that learned.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from history.test_flat import trained
from history.test_stuck import record
from normscope.doctor.result import RateRange, Severity
from normscope.history.explain import Explanation, explain, page
from normscope.history.joined import COMMAND, verdict_rows
from normscope.history.little import LITTLE, beside_rate
from normscope.history.patterns import FLAT
from normscope.history.record import History, LoggedSeries, TrainingRecipe
from report.diagnoses import advice

UNIGRAM = TrainingRecipe(unigram_nats=3.144)
USUAL = 5.7e-3
FOUND: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("rescue_losses.json").read_text(encoding="utf-8")
)
LITTLE_LEARNED = [one for one in FOUND if one["kind"] == "little"]
LEARNED = [one for one in FOUND if one["kind"] == "learned"]


def log(losses: list[float], rate: float | None, recipe: TrainingRecipe = UNIGRAM) -> Explanation:
    updates = tuple(range(1, len(losses) + 1))
    rates = LoggedSeries() if rate is None else LoggedSeries(updates, (rate,) * len(updates))
    loss = LoggedSeries(updates, tuple(losses))
    return explain(History(source="log", loss=loss, rate=rates, recipe=recipe))


def pre_ln(best: float | None = USUAL, **changes: Any) -> Any:
    """A Pre-LN with an advice of that rate, from a third of it to three times it."""
    known = replace(advice(best=best, asked=None), **changes) if changes else advice(best=best)
    return record(norm_first=True, advice=replace(known, wanted_rate=None, wanted_place=None))


@pytest.mark.parametrize("one", LITTLE_LEARNED, ids=lambda one: one["name"])
def test_a_loss_that_stands_little_below_frequencies_gets_ways_on_the_lower_rate_first(
    one: dict[str, Any],
) -> None:
    alone = log(one["losses"], one["rate"])
    assert alone.severity is not Severity.WARNING
    found = beside_rate(alone, pre_ln())
    (episode,) = found.episodes
    assert (episode.kind, episode.cause) == ("plateau", LITTLE)
    assert found.severity is Severity.WARNING
    rows = verdict_rows(found, pre_ln())
    first, said = rows[0][1], dict(rows)
    assert first.startswith("train again with a lower rate (5.7e-3 instead of ")
    assert "hardly falls, at " in said["what"]
    assert "above the usual range of such a model under adamw, which ends at 0.017" in said["why"]
    assert "frequent tokens are at 3.14" in said["why"]
    assert COMMAND in said
    assert any("hardly falls" in line for line in page(found))
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize("one", LITTLE_LEARNED, ids=lambda one: one["name"])
def test_without_the_rate_or_what_is_usual_or_the_targets_it_is_left_alone(
    one: dict[str, Any],
) -> None:
    losses, rate = one["losses"], one["rate"]
    known = log(losses, rate)
    for diagnosis in (pre_ln(best=rate), record(norm_first=True, advice=None)):
        assert beside_rate(known, diagnosis) is known
    for less in (log(losses, None), log(losses, rate, TrainingRecipe())):
        assert beside_rate(less, pre_ln()) is less
    of_sgd = log(losses, rate, replace(UNIGRAM, divides=False))
    assert beside_rate(of_sgd, pre_ln()) is of_sgd


def test_a_rate_that_still_rises_where_the_log_ends_is_left_alone() -> None:
    one = LITTLE_LEARNED[0]
    known = log(one["losses"], one["rate"])
    updates = known.history.rate.updates
    rising = LoggedSeries(updates, tuple(one["rate"] * at / len(updates) for at in updates))
    known = explain(replace(known.history, rate=rising))
    assert beside_rate(known, pre_ln()) is known


def test_the_rate_that_the_user_names_stands_in_for_one_that_the_log_lacks() -> None:
    one = LITTLE_LEARNED[0]
    diagnosis = record(norm_first=True, advice=replace(advice(best=USUAL), wanted_rate=0.3))
    (episode,) = beside_rate(log(one["losses"], None), diagnosis).episodes
    assert episode.cause == LITTLE


@pytest.mark.parametrize("one", LEARNED, ids=lambda one: one["name"])
def test_a_training_that_learned_is_left_alone_whatever_rate_is_usual(one: dict[str, Any]) -> None:
    for best in (USUAL, 1e-7):
        known = log(one["losses"], one["rate"])
        assert beside_rate(known, pre_ln(best=best)) is known


@pytest.mark.parametrize("kind", ["healthy", "converged", "fine-tuned"])
def test_healthy_logs_are_left_alone_at_whatever_update_they_are_read(kind: str) -> None:
    """Beside a usual rate so low that each of theirs lies above it."""
    diagnosis = pre_ln(best=1e-7)
    for one in trained(kind).values():
        whole = TrainingRecipe(unigram_nats=one["unigram_nats"], classes=one["classes"])
        losses = one["losses"]
        for count in (*range(45, min(len(losses), 300), 50), len(losses)):
            for recipe in (whole, replace(whole, unigram_nats=None)):
                known = log(losses[:count], one["rate"], recipe)
                assert beside_rate(known, diagnosis) is known, (one["name"], count)


@pytest.mark.parametrize("training", ["post-ln, 12 blocks", "post-ln, 8 blocks"])
def test_a_short_log_that_never_fell_warns_where_its_rate_is_above_the_usual(training: str) -> None:
    """The first updates are left out: what a short log shows is all flat."""
    one = trained("stuck")[training]
    recipe = TrainingRecipe(unigram_nats=one["unigram_nats"], classes=one["classes"])
    losses = one["losses"][20:100]
    alone = log(losses, one["rate"], recipe)
    assert alone.severity is Severity.INFO
    found = beside_rate(alone, pre_ln(best=1e-4))
    (episode,) = found.episodes
    assert (episode.kind, episode.cause, found.severity) == ("plateau", FLAT, Severity.WARNING)
    assert "updates are few" in " ".join(episode.evidence)
    assert verdict_rows(found, pre_ln(best=1e-4))[0][1].startswith("train again with a lower rate")
    assert beside_rate(alone, pre_ln(best=one["rate"])) is alone


def test_the_range_is_a_third_to_three_times_the_rate() -> None:
    assert pre_ln().advice.best_interval == RateRange(low=USUAL / 3, high=USUAL * 3)
