"""Runs under everything that befalls them, in any order: stopped, killed, damaged, resumed,
lengthened, mixed up.

Hypothesis draws the order. After each step the log of metrics goes forward and whole checkpoints
stay; damage is refused by name; in the end the run is to the bit what it is when it is left alone.
"""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from forked import call
from normscope.data import opening
from normscope.errors import UserError
from normscope.runs import machine, run
from normscope.tasks.translation import TranslationRunConfig
from normscope.train import Interrupted
from normscope.train.checkpoint import Checkpoint, existing
from tiny import finish, flip, result, tiny

UPDATES, MOST_UPDATES = 10, 14
SETTINGS = (
    "train.validate_every=4",
    "train.checkpoint_every=3",
    "train.keep_checkpoints=3",
    "data.max_tokens=128",
    "data.toy_pairs=100",
)
EXAMPLES = int(os.environ.get("NORMSCOPE_RUN_STATES", "1"))
"""Orders that are drawn; `make faults` draws many."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@lru_cache
def alone(updates: int, *, seed: int = 1) -> Path:
    """A run that nothing befalls."""
    folder = Path(tempfile.mkdtemp()) / "run"
    run.train_run(tiny(*SETTINGS, f"train.duration={updates}", f"seed={seed}"), folder)
    return folder


class Killed(BaseException):
    """What stands for a kill: nothing of the run is called any more, and nothing is saved."""


class Runs(RuleBasedStateMachine):
    """One run folder; its checkpoints that are whole, and what has been damaged."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.folder = self.place / "run"
        self.updates = UPDATES
        self.whole: set[int] = set()
        self.damaged: Path | None = None

    def teardown(self) -> None:
        if self.damaged is None:
            self.train()
            assert result(self.folder, self.updates) == result(alone(self.updates), self.updates)
        shutil.rmtree(self.place)

    @property
    def config(self) -> TranslationRunConfig:
        return tiny(*SETTINGS, f"train.duration={self.updates}")

    def train(self, at: int | None = None, what: Callable[[], None] = lambda: None) -> None:
        """Train to the end; `what` happens in update `at`."""

        def listen(event: dict[str, object]) -> None:
            if event["event"] == "update" and event["update"] == at:
                what()

        run.train_run(self.config, self.folder, listeners=[listen])
        self.whole = self.there()

    def there(self) -> set[int]:
        return {checkpoint.update for checkpoint in existing(self.folder / "checkpoints")}

    @initialize()
    def begin(self) -> None:
        self.stopped(1, signal.SIGINT)

    @rule(ahead=st.integers(1, 6), number=st.sampled_from(SIGNALS))
    @precondition(lambda self: self.damaged is None)
    def stopped(self, ahead: int, number: int) -> None:
        """The update in which it is asked to stop is saved."""
        at = max(self.whole, default=0) + ahead
        try:
            self.train(at, lambda: os.kill(os.getpid(), number))
        except Interrupted as stop:
            assert stop.exit_code == 128 + number  # noqa: PT017 - it may also have come to its end
            self.whole = self.there()
            assert max(self.whole) == at

    @rule(ahead=st.integers(1, 6))
    @precondition(lambda self: self.damaged is None)
    def killed(self, ahead: int) -> None:
        def kill() -> None:
            raise Killed

        try:
            self.train(max(self.whole) + ahead, kill)
        except Killed:
            assert max(self.there()) >= max(self.whole)
            self.whole = self.there()

    @rule(more=st.integers(1, 3))
    @precondition(lambda self: self.updates < MOST_UPDATES)
    def made_longer(self, more: int) -> None:
        """From the next command on, also where the run has come to its end."""
        self.updates = min(self.updates + more, MOST_UPDATES)

    @rule(data=st.data(), how=st.sampled_from(["flipped", "cut", "removed"]))
    @precondition(
        lambda self: self.damaged is None and len(self.whole) > 1 and self.updates not in self.whole
    )
    def damage(self, data: st.DataObject, how: str) -> None:
        """Of the newest checkpoint, a file."""
        newest = self.folder / "checkpoints" / f"step-{max(self.whole)}"
        self.damaged = data.draw(st.sampled_from(sorted(newest.iterdir())))
        content = self.damaged.read_bytes()
        if how == "flipped":
            flip(self.damaged, data.draw(st.integers(0, 8 * len(content) - 1)))
        elif how == "cut":
            self.damaged.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        else:
            self.damaged.unlink()

    @rule()
    @precondition(lambda self: self.damaged is not None)
    def refused_and_resumed_from_an_older_one(self) -> None:
        """The refusal names the file, and offers an older checkpoint."""
        assert self.damaged is not None
        older = max(self.whole - {max(self.whole)})
        with pytest.raises(UserError, match=self.damaged.name) as refused:
            run.train_run(self.config, self.folder)
        assert f"--from-step {older}" in str(refused.value)
        run.train_run(self.config, self.folder, from_step=older)
        self.damaged, self.whole = None, self.there()

    @rule()
    @precondition(lambda self: self.damaged is None and self.updates not in self.whole)
    def another_run_s_checkpoint_is_refused(self) -> None:
        """Copied in as a newer one, it is named and nothing is lost."""
        foreign = self.folder / "checkpoints" / f"step-{self.updates}"
        shutil.copytree(alone(self.updates, seed=2) / "checkpoints" / foreign.name, foreign)
        with pytest.raises(UserError, match=foreign.name):
            run.train_run(self.config, self.folder)
        shutil.rmtree(foreign)

    @invariant()
    def the_log_goes_forward(self) -> None:
        lines = (
            (self.folder / "metrics.jsonl").read_text().splitlines() if self.folder.is_dir() else []
        )
        updates = [
            event["update"] for line in lines if (event := json.loads(line))["event"] == "update"
        ]
        assert updates == list(range(1, len(updates) + 1))

    @invariant()
    def what_was_whole_is_whole(self) -> None:
        for update in self.whole:
            folder = self.folder / "checkpoints" / f"step-{update}"
            if self.damaged is None or folder not in self.damaged.parents:
                Checkpoint(folder).verify()


def drawn(examples: int) -> None:
    """For `forked.call`: draw so many orders."""
    machine.fast_matmul = lru_cache(machine.fast_matmul)  # type: ignore[assignment]
    opening._TOY_HELD_OUT = 12
    opening.toy_corpus = lru_cache(opening.toy_corpus)
    run_state_machine_as_test(
        Runs,
        settings=settings(
            max_examples=examples,
            stateful_step_count=6,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_runs_come_to_the_same_end_whatever_befalls_them() -> None:
    process = call(drawn, EXAMPLES)
    process.wait()  # as long as it takes; `finish` waits for minutes
    code, out, err = finish(process)
    assert code == 0, out + err
