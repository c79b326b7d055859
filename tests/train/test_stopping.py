"""A run is stopped early by the rule as it is stated, and goes on from there as if it had never
been.
"""

import json
import re
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from normscope.compare.verdict import LEARNED_BELOW
from normscope.errors import UserError
from normscope.runs.config import replaced
from normscope.runs.run import train_run
from normscope.tasks.translation import TRANSLATION
from normscope.train import RunFolder, StopRule
from normscope.train.config import Stopping
from tiny import result, tiny

ROOT = Path(__file__).parents[2]
RESULTS = ("demo", "multi30k_cpu", "multi30k_tiny", "placements_cpu", "placements_cpu_newer")
STUCK = tiny(
    "optimizer.peak_lr=1e-9",
    "schedule.warmup_updates=2",
    "train.duration=12",
    "train.validate_every=2",
    "train.checkpoint_every=5",
    "train.keep_checkpoints=9",
)
"""Its loss stays that of its initial weights, which is above the unigram baseline."""
LEARNS = replaced(STUCK, optimizer__peak_lr=6e-2, train__duration=16, train__validate_every=4)
"""Above 4.6 nats at its first three validations, and below at the fourth."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "whole"
    train_run(STUCK, path)
    return path


def decided_at(losses: list[float], rule: StopRule, chance: float, peak: int) -> int | None:
    """The first validation with which a stretch of them at chance is long enough; one comes after
    every update.
    """
    after = [(update, loss >= chance) for update, loss in enumerate(losses, 1) if update > peak]
    for stuck, part in groupby(after, key=lambda one: one[1]):
        updates = [update for update, _ in part]
        if stuck and len(updates) >= rule.validations:
            return updates[rule.validations - 1]
    return None


@given(
    losses=st.lists(st.sampled_from([4.9, 5.0, 5.1]), max_size=12),
    validations=st.integers(1, 4),
    peak=st.integers(0, 4),
    resumed=st.integers(0, 12),
)
def test_it_counts_validations_in_a_row_after_the_peak_however_often_it_is_resumed(
    losses: list[float], validations: int, peak: int, resumed: int
) -> None:
    rule = StopRule(validations)
    events = [
        {"event": "validation", "update": u, "nll_nats": loss} for u, loss in enumerate(losses, 1)
    ]
    found = None
    stopping = Stopping(rule, chance_nats=5.0, peak_update=peak)
    for update, loss in enumerate(losses, 1):
        if update == resumed + 1:
            stopping = Stopping(rule, chance_nats=5.0, peak_update=peak)
            # What the log has beyond the checkpoint is done again.
            stopping.restore(events, resumed)
        stopping.take(update, loss)
        if stopping.is_decided:
            found = update
            break
    assert found == decided_at(losses, rule, 5.0, peak)


def test_a_run_at_chance_is_stopped_says_why_and_goes_on_to_the_bits_of_one_that_never_was(
    tmp_path: Path, uninterrupted: Path
) -> None:
    said: list[str] = []
    progress = train_run(STUCK, tmp_path / "run", stop_when=StopRule(), say=said.append)
    run = RunFolder(tmp_path / "run")
    chance = TRANSLATION.chance_nats(TRANSLATION.open(STUCK))
    losses = [event["nll_nats"] for event in run.events() if event["event"] == "validation"]
    # That at update 2 is of the last update of the warm-up; 4, 6 and 8 are after the peak.
    assert len(losses) == 4
    assert min(losses) > chance
    assert progress.update == 8
    assert run.events()[-1].items() >= {"event": "decided", "update": 8, "validations": 3}.items()
    assert re.fullmatch(
        rf"not below .*{chance:.3f}, at 3 validations in a row .*", run.events()[-1]["reason"]
    )
    assert said == [f"stopped early after update 8: {run.events()[-1]['reason']}"]
    before = run.metrics_file.read_bytes()
    assert train_run(STUCK, run.path, stop_when=StopRule(2), say=said.append).update == 8
    assert "nothing to do" in said[-1]
    assert run.metrics_file.read_bytes() == before
    # A rule that asks for more finds the run not decided yet, and counts what is behind it.
    assert train_run(STUCK, run.path, stop_when=StopRule(4)).update == 10
    assert train_run(STUCK, run.path).update == 12
    assert result(run.path, 12) == result(uninterrupted, 12)


@pytest.mark.thorough
def test_a_run_that_learns_and_one_that_is_at_its_end_are_not_stopped(
    tmp_path: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TRANSLATION), "chance_nats", lambda task, corpus: 4.6)
    train_run(LEARNS, tmp_path / "learns", stop_when=StopRule(4))
    losses = [
        event["nll_nats"]
        for event in RunFolder(tmp_path / "learns").events()
        if event["event"] == "validation"
    ]
    assert [loss < 4.6 for loss in losses] == [False, False, False, True]
    assert RunFolder(tmp_path / "learns").is_finished
    # That it would have learned is not known after the third.
    assert train_run(LEARNS, tmp_path / "sooner", stop_when=StopRule(3)).update == 12
    train_run(STUCK, tmp_path / "stuck", stop_when=StopRule(5))
    assert result(tmp_path / "stuck", 12) == result(uninterrupted, 12)


@pytest.mark.parametrize("text", ["decide", "decided:", "decided:0", "decided:-1", "halving"])
def test_another_rule_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="stop-when"):
        StopRule.of(text)
    assert StopRule.of("decided") == StopRule(3)
    assert StopRule.of(str(StopRule(7))) == StopRule(7)


def test_of_the_runs_in_results_it_would_have_ended_none_that_learned() -> None:
    """As docs/comparing.md says: with their numbers, over the results that record validations over
    updates.
    """
    runs = ended = learned = spared = had = 0
    for folder in RESULTS:
        data = json.loads((ROOT / "results" / folder / "results.json").read_text(encoding="utf-8"))
        chance, warmups = (
            data["chance_nll_nats"],
            {arm["label"]: arm["warmup_updates"] for arm in data["arms"]},
        )
        for curve in data["validation"]:
            for row in curve["seeds_values"]:
                runs += 1
                stopping = Stopping(
                    StopRule(), chance_nats=chance, peak_update=warmups[curve["label"]]
                )
                points = [
                    (update, nats)
                    for update, nats in zip(curve["updates"], row, strict=False)
                    if nats
                ]
                last, at = points[-1], 0
                for update, nats in points[:-1]:
                    stopping.take(update, nats)
                    if stopping.is_decided:
                        at = update
                        break
                if at:
                    ended += 1
                    spared, had = spared + last[0] - at, had + last[0]
                    learned += any(
                        nats < LEARNED_BELOW * chance for update, nats in points if update > at
                    )
    assert (runs, ended, learned) == (222, 11, 0)
    page = (ROOT / "docs/comparing.md").read_text(encoding="utf-8")
    assert f"In the {runs} runs" in page
    assert f"would have ended {ended}, and none" in page
    assert f"{spared:,} of {had:,} updates" in page
