"""A run that is measured while it trains is the run that is not, with events of its own beside the
losses.
"""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from normscope.errors import UserError
from normscope.runs.run import train_run
from normscope.train import RunFolder
from tiny import SHORT, tiny


def trained(folder: Path, *settings: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    train_run(tiny(*SHORT, "train.duration=6", *settings), folder)
    run = RunFolder(folder)
    return run.events(), load_file(run.checkpoint("last").folder / "model.safetensors")


def test_the_training_is_the_same_bit_by_bit(tmp_path: Path) -> None:
    events, weights = trained(tmp_path / "with", "train.monitor_every=2")
    without, others = trained(tmp_path / "without")
    measured = [event for event in events if event["event"] == "monitor"]
    assert [event["update"] for event in measured] == [1, 3, 5]
    assert [event for event in events if event["event"] != "monitor"] == without
    assert all(weights[name].equal(others[name]) for name in weights)
    kinds = {
        "encoder.blocks.0": ("attention", "feed_forward"),
        "decoder.blocks.0": ("attention", "cross_attention", "feed_forward"),
    }
    for event in measured:
        ratios = [name.split("/")[1:4] for name in event if name.endswith("/update_ratio")]
        assert ratios == [[stack, "block_01", kind] for stack in kinds for kind in kinds[stack]]
        assert all(
            event[name] > 0
            for name in event
            if name.endswith(("update_ratio", "gradient_norm", "logit_deviation"))
        )
    # On one batch, so that what differs is the model alone.
    assert measured[0]["normscope/logit_deviation"] != measured[1]["normscope/logit_deviation"]


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="monitor_every is a number of updates"):
        tiny("train.monitor_every=-1")
