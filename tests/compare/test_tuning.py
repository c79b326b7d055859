"""Tuning by runs that train nothing: every run has a loss that is known, and a kill may come at any of them."""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from drawing import drawn_once
from normscope.compare import pool
from normscope.compare.asked import AskedComparison
from normscope.compare.compare import ComparisonResult, corpus_of, report, run_comparison, run_tuning
from normscope.compare.grid import Cell, Grid
from normscope.compare.pool import PoolOptions
from normscope.compare.search import STARTS, OpenArm, Tuning, rounded
from normscope.compare.tune import TuningTask
from normscope.compare.watching import runs_below
from normscope.errors import UserError
from normscope.files import make_folders
from normscope.report.comparison import pictures
from normscope.report.comparison.contents import ComparisonPage
from normscope.report.words import learning_rate
from normscope.runs.config import load
from normscope.train import StopRule
from tiny import tiny, write_events

pytestmark = pytest.mark.sampled(one_in=3)

pytest.importorskip("optuna", reason="Optuna is not installed")

BEST = {"post-ln": 1e-3, "pre-ln": 5e-2}
"""Of Pre-LN it lies beyond the range."""
BASE = tiny("train.duration=4", "train.validate_every=2")
GRID = Grid(
    placements_and_warmups=(("post-ln", 2), ("pre-ln", 0)), peak_lrs=(3e-3,), optimizers=("adam",), seeds=2, threads=1
)
TUNING = Tuning(trials=7, low=3e-4, high=3e-2)


class Killed(BaseException):
    """As SIGKILL of the command: nothing of it runs any more."""


class Ended:
    """Stands for the process of a run that is over."""

    def poll(self) -> int:
        return 0

    def wait(self) -> int:
        return 0


class Stub:
    """Runs whose loss is a bowl over the logarithm of the rate; ten times above the best rate they do not stay finite.

    kill_at: the start, counted from 0, at which the command is killed, with half of that run done.
    """

    def __init__(self, kill_at: int | None = None) -> None:
        self.started, self.words, self.kill_at = list[str](), list[Sequence[str]](), kill_at

    def __call__(self, cell: Cell, words: Sequence[str]) -> Ended:
        config, run = load(Path(words[3])), cell.folder
        rate, best = config.optimizer.peak_lr, BEST[config.model.placement]
        loss = 2.0 + math.log10(rate / best) ** 2 + config.seed / 1e4
        begun = [
            {"event": "update", "update": 1, "nll_nats": 6.5, "lr": rate, "gradient_norm": 1.0},
            {"event": "validation", "update": 2, "nll_nats": 4.6},
        ]
        make_folders(run.path)
        run.write_config(Path(words[3]).read_text(encoding="utf-8"))
        if len(self.started) == self.kill_at:
            write_events(run, begun)
            raise Killed
        end = [{"event": "validation", "update": 4, "nll_nats": loss}, {"event": "finished", "update": 4}]
        diverged = [{"event": "non-finite", "update": 3, "reason": "the loss (inf)"}]
        write_events(run, [*begun, *(end if rate < 10 * best else diverged)])
        self.started.append(cell.name)
        self.words.append(words)
        return Ended()


def compared(folder: Path, stub: Stub, tuning: Tuning = TUNING, stop_when: StopRule | None = None) -> ComparisonResult:
    asked = AskedComparison(base=BASE, grid=GRID, folder=folder, tuning=tuning)
    with patch.object(pool, "process_of", stub):
        return run_comparison(asked, PoolOptions(command="normscope compare", processes=1, stop_when=stop_when))


@pytest.fixture(scope="module", autouse=True)
def _no_waiting() -> Iterator[None]:
    """Neither between looks nor for pictures that are there already."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pool, "_POLL_SECONDS", 0.0)
        for picture in ("endings_svg", "chart_svg"):
            patched.setattr(pictures, picture, drawn_once(getattr(pictures, picture)))
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stub, ComparisonPage]:
    folder, stub = tmp_path_factory.mktemp("tuned"), Stub()
    return folder, stub, compared(folder, stub).page


def test_every_arm_has_as_many_trials_and_is_compared_at_the_best_of_them(
    whole: tuple[Path, Stub, ComparisonPage],
) -> None:
    _, stub, page = whole
    trials = [name for name in stub.started if name.endswith("_seed-1001")]
    final = stub.started[len(trials) :]
    assert [sum(name.startswith(p) for name in trials) for p in BEST] == [7, 7]
    assert len(set(stub.started)) == len(stub.started) == 14 + 4
    rates = {p: [float(n.split("_lr-")[1].split("_")[0]) for n in trials if n.startswith(p)] for p in BEST}
    assert rates["post-ln"][:STARTS] == rates["pre-ln"][:STARTS] == [3e-4, 9.49e-4, 3e-3, 9.49e-3, 3e-2]
    best = {p: min(rates[p], key=lambda rate: abs(math.log10(rate / BEST[p]))) for p in BEST}
    assert final == [
        f"{p}_warmup-{w}_lr-{best[p]!r}_adam_seed-{s}" for s in (1, 2) for p, w in (("post-ln", 2), ("pre-ln", 0))
    ]
    post, pre = page.tuned
    assert (str(post.name), str(pre.name)) == ("Post-LN, warm-up 2", "Pre-LN, no warm-up")
    assert [(arm.trials, arm.peak_lr, arm.beyond) for arm in page.tuned] == [
        (7, best["post-ln"], ""),
        (7, best["pre-ln"], "higher"),
    ]
    assert "a higher one may be better" in pre.summary
    assert post.loss_nats == pytest.approx(2.1001 + math.log10(best["post-ln"] / 1e-3) ** 2, rel=1e-12)
    # Their rates differ, so that each is named by its own.
    assert all(f"rate {learning_rate(row.peak_lr)}" in str(row.name) for row in page.configurations)


def test_page_data_and_watch_know_the_trials(whole: tuple[Path, Stub, ComparisonPage]) -> None:
    folder, _, page = whole
    text = (folder / "report.html").read_text()
    assert "The best rate of each" in text
    assert "7 trials, with seed 1001" in text
    assert (folder / "loss_by_rate_of_trials.svg").is_file()
    assert len(page.trial_curves) == 2
    saved = json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)["tuning"]
    assert [arm["trials"] for arm in saved["arms"]] == [7, 7]
    assert all(len(curve["peak_lrs"]) == 7 for curve in saved["trials"])
    assert len(runs_below(folder)) == 18
    again, _ = report([folder], folder)
    assert again.tuned == page.tuned
    of_trials, _ = report([folder / "tuning"], folder / "tuning")
    assert of_trials.tuned == page.tuned
    assert not of_trials.trial_curves
    assert len(of_trials.rate_curves) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("kill_at", [3, 12])
def test_a_kill_in_the_middle_of_a_trial_loses_none_and_repeats_none(
    kill_at: int, whole: tuple[Path, Stub, ComparisonPage], tmp_path: Path
) -> None:
    killed, after = Stub(kill_at), Stub()
    with suppress(Killed):
        compared(tmp_path, killed)
    assert len(killed.started) == kill_at
    page = compared(tmp_path, after).page
    assert killed.started + after.started == whole[1].started
    assert page.tuned == whole[2].tuned


@pytest.mark.thorough
def test_more_trials_go_on_from_those_that_are_there(whole: tuple[Path, Stub, ComparisonPage], tmp_path: Path) -> None:
    fewer, more = Stub(), Stub()
    compared(tmp_path, fewer, Tuning(trials=5, low=3e-4, high=3e-2))
    compared(tmp_path, more)
    trials = [name for name in fewer.started + more.started if name.endswith("-1001")]
    assert trials == [name for name in whole[1].started if name.endswith("-1001")]


def test_a_search_with_other_settings_is_refused_and_so_is_one_that_never_peaks(tmp_path: Path) -> None:
    compared(tmp_path, Stub(), Tuning(trials=5, low=3e-4, high=3e-2))
    for other, named in ((Tuning(trials=5, low=1e-4, high=3e-2), "low"), (TUNING, "stop_when")):
        with pytest.raises(UserError, match=f"{named}: .* there, .* now"):
            compared(tmp_path, Stub(), other, StopRule() if named == "stop_when" else None)
    asked = TuningTask(base=BASE, arms=[OpenArm("post-ln", (5,), "adam")], tuning=TUNING, corpus=corpus_of(BASE, None))
    with pytest.raises(UserError, match="never reaches its peak"):
        run_tuning(asked, tmp_path / "peak", PoolOptions(command="", say=print), title=None)


@pytest.mark.thorough
def test_a_warmup_is_searched_too(tmp_path: Path) -> None:
    stub, arm = Stub(), OpenArm("post-ln", (0, 2), "adam")
    asked = TuningTask(base=BASE, arms=[arm], tuning=TUNING, corpus=corpus_of(BASE, None))
    with patch.object(pool, "process_of", stub):
        tuned, done = run_tuning(asked, tmp_path, PoolOptions(command="", processes=1), title=None)
    assert {cell.arm.warmup_updates for cell in tuned.trials[arm]} == {0, 2}
    (row,) = done.page.tuned
    assert (row.trials, row.peak_lr, row.warmup_updates) == (
        7, tuned.best(arm).peak_lr, tuned.best(arm).warmup_updates
    )  # fmt: skip


def test_the_rule_that_stops_runs_early_reaches_every_run(tmp_path: Path) -> None:
    stub = Stub()
    compared(tmp_path, stub, Tuning(trials=5, low=3e-4, high=3e-2), StopRule(4))
    assert {tuple(words[-2:]) for words in stub.words} == {("--stop-when", "decided:4")}


@given(further=st.integers(0, 30), together=st.integers(1, 5))
def test_more_trials_add_rounds_and_change_none(further: int, together: int) -> None:
    tuning = Tuning(trials=STARTS + further * together, low=1e-4, high=1e-1, together=together)
    rounds = list(tuning.rounds())
    assert [number for numbers in rounds for number in numbers] == list(range(tuning.trials))
    longer = Tuning(trials=tuning.trials + together, low=1e-4, high=1e-1, together=together)
    assert list(longer.rounds())[: len(rounds)] == rounds
    if together > 1:
        with pytest.raises(UserError, match=f"{tuning.trials} or {tuning.trials + together}"):
            Tuning(trials=tuning.trials + 1, low=1e-4, high=1e-1, together=together)


@pytest.mark.parametrize(
    "wrong", [{"trials": 4}, {"low": 0.0}, {"low": 2e-2}, {"high": math.inf}, {"high": math.nan}, {"together": 0}]
)
def test_what_cannot_be_searched_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError):
        Tuning(**{"trials": 6, "low": 3e-4, "high": 3e-2} | wrong)


@given(rate=st.floats(1e-6, 1.0), others=st.lists(st.floats(1e-6, 1.0).map(lambda rate: rounded(rate)), max_size=5))
def test_a_rate_is_written_shortly_and_is_unlike_the_others(rate: float, others: list[float]) -> None:
    found = rounded(rate, others)
    assert found not in others or rate in others
    assert found == pytest.approx(rate, rel=5e-3)
    assert rounded(rate, [found]) != found or rate == found
