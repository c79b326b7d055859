"""TensorBoard's own reader finds in the event files what metrics.jsonl holds."""

from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from normscope.adapters.tensorboard import TensorBoardLog
from normscope.runs.run import train_run
from normscope.train import RunFolder
from tiny import SHORT, tiny


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return [(point.step, point.value) for point in reader.Scalars(tag)]


def test_every_scalar_is_there_at_its_update_and_a_resume_shows_none_twice(tmp_path: Path) -> None:
    """The first process goes two updates further than its last checkpoint, then the second goes
    back to that.
    """

    def die(event: dict[str, object]) -> None:
        if event["event"] == "update" and event["update"] == 7:
            raise KeyboardInterrupt

    folder, board = tmp_path / "run", tmp_path / "board"
    with pytest.raises(KeyboardInterrupt), TensorBoardLog(board) as log:
        train_run(tiny(*SHORT), folder, listeners=[log, die])
    assert [step for step, _ in scalars(board, "train/loss_nats")] == [1, 2, 3, 4, 5, 6, 7]
    with TensorBoardLog(board) as log:
        train_run(tiny(*SHORT), folder, listeners=[log])
    events = RunFolder(folder).events()
    for kind, tag, quantity in (
        ("update", "train/loss_nats", "loss_nats"),
        ("update", "train/lr", "lr"),
        ("validation", "validation/nll_nats", "nll_nats"),
        ("finished", "finished/summed_lr", "summed_lr"),
    ):
        # Event files hold float32.
        wanted = [
            (e["update"], float(np.float32(e[quantity]))) for e in events if e["event"] == kind
        ]
        assert scalars(board, tag) == wanted, tag
    assert len(scalars(board, "train/target_tokens_per_second")) == 12


def test_reasons_and_profiles_are_no_scalars(tmp_path: Path) -> None:
    with TensorBoardLog(tmp_path) as log:
        log(
            {
                "event": "initialisation",
                "update": 0,
                "updates": 9,
                "gradient_norms": {"w": 1.0},
                "elapsed_seconds": 2.0,
            }
        )
        log(
            {
                "event": "skipped",
                "update": 1,
                "updates": 9,
                "reason": "the loss",
                "elapsed_seconds": 3.0,
            }
        )
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    assert sorted(reader.Tags()["scalars"]) == ["skipped/elapsed_seconds"]


def test_nothing_is_made_for_a_run_that_has_nothing_to_do(tmp_path: Path) -> None:
    with TensorBoardLog(tmp_path / "board"):
        pass
    assert not (tmp_path / "board").exists()
