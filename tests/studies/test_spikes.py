"""A training broken on purpose and healthy ones, in both loops: the doctor finds, dates, places and
explains.
"""

import json
from pathlib import Path

import pytest

from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.spikes.cases import SpikesConfig
from normscope_studies.spikes.study import STUDY

SMALL = {"updates": 66, "change_at": 42, "blocks": 2, "every_updates": 4}


def test_a_broken_block_is_found_in_our_loop_and_a_healthy_training_is_left_alone(
    tmp_path: Path,
) -> None:
    config = SpikesConfig(
        loops=("normscope",),
        seeds=1,
        broken=("rate",),
        slow=("queries",),
        healthy=("warm-up",),
        **SMALL,
    )
    run_study(STUDY, config, first := Pieces(tmp_path), command="normscope study spikes")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert {claim["name"]: claim["verdict"] for claim in results["claims"]} == dict.fromkeys(
        ("dated", "explained", "placed", "silent"), "reproduced"
    )
    broken, slow, healthy = results["trainings"]
    assert (broken["broken_at"], healthy["onset"]) == (42, None)
    assert "block_02" in broken["place"]
    # Queries and keys that grow are seen at the first measurement; the loss does not tell within so
    # few updates.
    assert slow["broken_at"] <= slow["warned_at"] < slow["broken_at"] + 2 * SMALL["every_updates"]
    assert slow["loss_left_at"] is None
    assert results["alarms"] == {"false_alarms": 0, "healthy_updates": 66 + 2 * 41}
    # What is there is not trained again.
    run_study(STUDY, config, again := Pieces(tmp_path), command="normscope study spikes")
    assert (first.made, again.made) == (
        ["normscope/rate-1", "normscope/queries-1", "normscope/warm-up-1"],
        [],
    )


@pytest.mark.thorough
def test_a_bad_batch_is_found_in_the_trainers_log(tmp_path: Path) -> None:
    pytest.importorskip(
        "transformers", reason="needs Hugging Face transformers (the `huggingface` extra)"
    )
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    config = SpikesConfig(
        loops=("trainer",), seeds=1, broken=("batch",), slow=(), healthy=(), **SMALL
    )
    run_study(STUDY, config, Pieces(tmp_path), command="normscope study spikes")
    (found,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["trainings"]
    assert (found["onset"], found["cause"]) == (42, "bad-batch")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"broken": ("none",)}, "broken: none is not one; choose from rate"),
        ({"change_at": 190}, "must leave"),
        ({"seeds": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpikesConfig(**changes)  # type: ignore[arg-type]
