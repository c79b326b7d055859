"""Trials by Optuna: the same after a kill at any byte of the journal, and near an optimum that is known."""

import math
import random
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from normscope.adapters.optuna import ListAxis, LogAxis, Search
from normscope.errors import UserError

pytest.importorskip("optuna", reason="Optuna is not installed")

LOW, HIGH, COUNT = 1e-4, 1e-1, 9
STARTS = [{"rate": LOW * (HIGH / LOW) ** (i / 4)} for i in range(5)]


def loss(rate: float, best: float) -> float:
    """As over learning rates: a bowl in the logarithm, and nothing finite from four times the best on."""
    return math.log10(rate / best) ** 2 if rate < 4 * best else math.inf


def search(journal: Path, seed: int = 3) -> Search:
    return Search(journal, {"rate": LogAxis(LOW, HIGH)}, starts=STARTS, seed=seed)


def trials(journal: Path, count: int = COUNT, best: float = 2e-3, seed: int = 3) -> list[float]:
    """Ask for trials and tell what they came to, one after the other."""
    asking, rates = search(journal, seed), list[float]()
    for number in range(count):
        rates.append(asking.ask(number)["rate"])
        asking.tell(number, loss(rates[-1], best))
    return rates


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("search") / "journal.jsonl"
    trials(file)
    return file


@given(share=st.floats(0, 1))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_part_of_the_journal_a_kill_leaves_the_trials_are_the_same_and_none_is_made_twice(
    share: float, journal: Path, tmp_path: Path
) -> None:
    content = journal.read_bytes()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(content[: round(share * len(content))])
    assert trials(cut) == trials(journal)
    assert cut.read_text().count('"distribution"') == COUNT


def test_a_trial_that_is_asked_for_again_is_the_same_and_one_told_again_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    rates = trials(file)
    again = search(file)
    assert [again.ask(number)["rate"] for number in range(COUNT)] == rates
    before = file.read_bytes()
    again.tell(0, -1.0)
    assert file.read_bytes() == before
    assert len(set(rates)) == COUNT


@pytest.mark.parametrize("best", [3e-4, 2e-3, 1.5e-2])
def test_the_optimum_is_found_within_the_budget(best: float, tmp_path: Path) -> None:
    """The first trials lie a factor of 5.6 apart, so that the nearest of them may be 2.4 times off."""
    for seed in (1, 2, 3):
        rates = trials(tmp_path / f"{seed}.jsonl", 14, best, seed)
        assert rates[:5] == pytest.approx([point["rate"] for point in STARTS], rel=1e-12)
        found = min(rates, key=lambda rate: loss(rate, best))
        assert max(found / best, best / found) < 1.6


def test_values_of_a_list_are_among_it_and_all_of_them_are_tried(tmp_path: Path) -> None:
    axes = {"rate": LogAxis(LOW, HIGH), "warmup": ListAxis((0, 50, 400))}
    starts = [{**point, "warmup": (0, 50, 400)[i % 3]} for i, point in enumerate(STARTS)]
    asking = Search(tmp_path / "journal.jsonl", axes, starts=starts, seed=1)
    found = []
    for number in range(10):
        point = asking.ask(number)
        found.append(point["warmup"])
        assert asking.ask(number) == point
        asking.tell(number, abs(point["warmup"] - 50))
    assert found[:5] == [0, 50, 400, 0, 50]
    assert set(found) == {0, 50, 400}


def test_a_damaged_journal_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    trials(file, 2)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], b"{]\n", *lines[2:]]))
    with pytest.raises(UserError, match=r"journal\.jsonl cannot be read .* remove it"):
        trials(file, 2)


def test_a_changed_or_lost_line_is_found_and_named(journal: Path, tmp_path: Path) -> None:
    """But for lines that are lost from the end on, which are what a kill leaves: they are asked for and told again."""
    lines = journal.read_text().splitlines(keepends=True)
    draw, file = random.Random(5), tmp_path / "journal.jsonl"
    for _ in range(120):
        number = draw.randrange(len(lines))
        place = draw.randrange(len(lines[number]) - 1)
        flipped = chr(ord(lines[number][place]) ^ (1 << draw.randrange(7)))
        changed = lines[number][:place] + flipped + lines[number][place + 1 :]
        file.write_text("".join([*lines[:number], changed, *lines[number + 1 :]]))
        with pytest.raises(
            UserError, match=rf"journal\.jsonl cannot be read .*line {number + 1} (is damaged|was changed)"
        ):
            search(file)
    for number in range(len(lines) - 1):
        file.write_text("".join([*lines[:number], *lines[number + 1 :]]))
        with pytest.raises(UserError, match=rf"line {number + 1} was changed, or a line before it is lost"):
            search(file)
    file.write_text("".join(lines[:-1]))
    assert trials(file) == trials(journal)


def test_without_optuna_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"\[tune\]"):
        search(tmp_path / "journal.jsonl")
