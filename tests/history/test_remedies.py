"""Remedies stand in the order in which trainings of ours say that they help."""

import random
from dataclasses import replace
from itertools import permutations

import pytest
import torch

import normscope
from history.test_stuck import record, stuck
from normscope.doctor.result import Finding, Severity
from normscope.errors import UserError
from normscope.history.explain import explain
from normscope.history.joined import COMMAND, lasting, verdict_rows, ways_on
from normscope.history.record import History, LoggedSeries
from normscope.history.remedies import (
    Cured,
    Remedy,
    Situation,
    counted_in,
    in_order,
    our_trainings,
    situation_of,
)
from normscope_studies.rescue.models import RescueModel

WAYS = (Remedy.RATE, Remedy.WARMUP, Remedy.PLACEMENT)


@pytest.mark.parametrize("order", list(permutations(WAYS)))
def test_what_ended_the_largest_share_stands_first(order: tuple[Remedy, ...]) -> None:
    counts = {
        Situation.NORMED: {
            remedy: Cured(9 - place, 10 + place) for place, remedy in enumerate(order)
        }
    }
    for given in permutations(WAYS):
        assert in_order(given, Situation.NORMED, counts) == order


def test_of_two_that_ended_as_many_the_one_that_takes_less_work_stands_first() -> None:
    counts = {Situation.OPEN: {Remedy.RATE: Cured(1, 2), Remedy.WARMUP: Cured(2, 4)}}
    assert in_order(WAYS, Situation.OPEN, counts) == WAYS
    assert in_order(WAYS, Situation.NORMED, {}) == WAYS


def test_counts_are_read_from_plain_values() -> None:
    table = {"a norm on every sum": {"rate": [3, 4]}}
    assert counted_in(table) == {Situation.NORMED: {Remedy.RATE: Cured(3, 4)}}
    with pytest.raises(ValueError, match="prayer"):
        counted_in({"a norm on every sum": {"prayer": [1, 1]}})


def test_the_ways_on_say_what_each_did_in_our_trainings_in_their_order() -> None:
    explained, diagnosis = stuck(), record()
    episode = lasting(explained)
    assert episode is not None
    ways = ways_on(diagnosis, episode, explained.history)
    told = replace(
        ways,
        counted={
            Situation.NORMED: {
                Remedy.RATE: Cured(5, 8),
                Remedy.WARMUP: Cured(1, 8),
                Remedy.PLACEMENT: Cured(7, 8),
            }
        },
    )
    assert told.order == (Remedy.PLACEMENT, Remedy.RATE, Remedy.WARMUP)
    assert told.words.startswith("train again under another placement (`normscope transplant ")
    assert told.words.endswith("; the command below decides")
    assert [name for name, _ in told.rows] == ["placement", "rate", "warm-up"]
    shown = dict(told.rows)
    assert shown["placement"].endswith("it cured 7 of 8 such failed runs of ours")
    assert shown["rate"].endswith("it cured 5 of 8 such failed runs of ours")
    none = replace(ways, counted={})
    assert none.order == WAYS
    assert "which of them helps is not known" in none.words
    assert not any("of ours" in words for _, words in none.rows)


def test_remedies_are_compared_on_the_trainings_in_which_all_of_them_were_tried() -> None:
    """A stuck Post-LN: a third of its rate left it where it was as often as not."""
    explained, diagnosis = stuck(), record()
    episode = lasting(explained)
    assert episode is not None
    ways = ways_on(diagnosis, episode, explained.history)
    assert ways.order[0] is Remedy.PLACEMENT
    shown = dict(ways.rows)
    tried = {words.rpartition(" cured ")[2].split()[2] for words in shown.values()}
    assert tried == {str(our_trainings()[Situation.MOVABLE][Remedy.PLACEMENT].of)}
    unmoved = replace(ways, to="")
    assert unmoved.order[0] is Remedy.RATE
    assert "6 of 8" in dict(unmoved.rows)["rate"]


def test_a_raised_rate_is_not_given_what_lower_ones_did() -> None:
    explained = stuck()
    episode = lasting(explained)
    assert episode is not None
    ways = ways_on(record(), episode, explained.history)
    counts = {Situation.NORMED: {Remedy.RATE: Cured(5, 8)}}
    low = replace(ways, rate_is_low=True, counted=counts)
    assert "of ours" not in dict(low.rows)["rate"]


def finding(rule: str, severity: Severity) -> Finding:
    return Finding(id=rule, severity=severity, where="", message="seen", fix="mend it so")


@pytest.mark.parametrize("rule", ["misplaced-step", "altered-stream"])
def test_a_skip_path_that_is_wrong_is_mended_first_though_it_is_a_warning(rule: str) -> None:
    wrong = record(findings=(finding(rule, Severity.WARNING),))
    assert situation_of(wrong) is Situation.SKIP_FAULT
    rows = verdict_rows(stuck(), wrong)
    assert rows[0] == ("do", f"fix the model first ({rule}): mend it so")
    assert COMMAND not in dict(rows)


@pytest.mark.parametrize(
    ("rule", "severity"),
    [("weight-decay-on-norms", Severity.WARNING), ("altered-stream", Severity.INFO)],
)
def test_a_warning_of_something_else_does_not_stand_before_the_ways(
    rule: str, severity: Severity
) -> None:
    beside = record(findings=(finding(rule, severity),))
    assert situation_of(beside) is Situation.NORMED
    assert COMMAND in dict(verdict_rows(stuck(), beside))


def test_the_model_says_whether_a_path_around_the_norms_is_open() -> None:
    assert situation_of(record()) is Situation.NORMED
    assert situation_of(record(norm_first=True)) is Situation.OPEN


def test_no_placement_is_offered_to_a_model_that_cannot_be_moved() -> None:
    """DeepNorm multiplies its skip, which `transplant` refuses."""
    torch.manual_seed(0)
    sizes = {"vocabulary": 9, "width": 16, "heads": 2, "tokens": 8}
    batch = (torch.randint(9, (2, 8)),)
    for wiring, moves in (("post-ln", True), ("deepnorm", False)):
        model = RescueModel("gpt", wiring, **sizes)
        found = normscope.diagnose(model, batch, advise=False, laws=False)
        rows = dict(verdict_rows(stuck(), replace(found, findings=())))
        assert ("transplant" in rows["do"]) == moves, wiring
        if not moves:
            with pytest.raises(UserError, match="wired with factors"):
                normscope.transplant(model, "pre-ln", inputs=batch)


def test_a_loss_that_rose_for_good_is_offered_a_placement_where_every_sum_is_normed() -> None:
    draw = random.Random(0)
    updates = tuple(range(1, 301))
    falls = [5 - 2.5 * at / 150 + draw.gauss(0, 0.02) for at in updates[:150]]
    rises = [3.4 + draw.gauss(0, 0.02) for _ in updates[150:]]
    history = History(
        source="log",
        loss=LoggedSeries(updates, (*falls, *rises)),
        rate=LoggedSeries(updates, (1e-3,) * len(updates)),
    )
    rose = explain(history)
    episode = lasting(rose)
    assert episode is not None
    assert episode.kind == "rise"
    rows = dict(verdict_rows(rose, record()))
    assert "transplant" in rows["do"]
    assert "--placements own,pre-ln" in rows[COMMAND]
    assert rows["cost"] == "8 runs of 300 updates"
    # Where a path is open the rate is the remedy, and a placement is none.
    assert "transplant" not in str(verdict_rows(rose, record(norm_first=True)))


def test_what_the_package_holds_are_counts_of_known_remedies() -> None:
    for remedies in our_trainings().values():
        for cured in remedies.values():
            assert 0 <= cured.count <= cured.of
