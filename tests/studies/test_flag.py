"""A model trained as Pre-LN is found under the wrong flag, and left alone under its own."""

import json
from pathlib import Path

import pytest

from normscope.studies.flag.config import FlagConfig
from normscope.studies.flag.study import STUDY
from normscope.studies.protocol.pieces import Pieces
from normscope.studies.protocol.study import run_study

SMALL = {"widths": (32,), "blocks": (3,), "seeds": (1,)}


def test_each_training_is_loaded_under_both_flags_and_made_once(tmp_path: Path) -> None:
    config = FlagConfig(after=(2, 90), rate=4e-3, **SMALL)
    run_study(STUDY, config, first := Pieces(tmp_path), command="normscope study flag")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    rows = [tuple(row[key] for key in ("trained", "loaded", "updates")) for row in results["checkpoints"]]
    assert rows == [
        (trained, loaded, updates)
        for trained, other in (("Pre-LN", "Post-LN"), ("Post-LN", "Pre-LN"))
        for updates in (2, 90)
        for loaded in (trained, other)
    ]
    said = {row for row, one in zip(rows, results["checkpoints"], strict=True) if one["said"]}
    # Too little was learned after two updates; Post-LN takes longer to show.
    assert ("Pre-LN", "Post-LN", 90) in said
    assert not [row for row in said if row[0] == row[1] or row[2] == 2]
    claims = {claim["name"]: claim for claim in results["claims"]}
    assert claims["silent"]["verdict"] == "reproduced"
    assert claims["Pre-LN found"]["conditions"] == (
        "Pre-LN 32 × 3, seed 1, 90 updates; not Pre-LN 32 × 3, seed 1, 2 updates"
    )
    # The flag changes the loss, and what is compared are the weights.
    own, wrong = results["checkpoints"][2:4]
    assert own["difference"] == pytest.approx(wrong["difference"])
    assert wrong["loss_nats"] != own["loss_nats"]
    # What is there is not trained again.
    run_study(STUDY, config, again := Pieces(tmp_path), command="normscope study flag")
    assert (first.made, again.made) == (["pre-ln/32-3-1", "post-ln/32-3-1"], [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": (2,)}, "too little to compare"),
        ({"seeds": ()}, "at least one"),
        ({"after": (30, 20)}, "rising order"),
        ({"widths": (30,)}, "multiples of 4"),
        ({"rate": 0.0}, "positive"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlagConfig(**changes)  # type: ignore[arg-type]
