"""A model trained as Pre-LN or Post-LN is found under the wrong flag, and left alone under its own."""

import json
from pathlib import Path

import pytest

from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.flag.study import STUDY, FlagConfig

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
    # Gains take many updates to show a wiring; Post-LN's shifts show it from the first one on.
    assert said == {("Pre-LN", "Post-LN", 90), ("Post-LN", "Pre-LN", 2), ("Post-LN", "Pre-LN", 90)}
    claims = {claim["name"]: claim for claim in results["claims"]}
    assert claims["silent"]["verdict"] == "reproduced"
    assert claims["Pre-LN found"]["conditions"] == (
        "Pre-LN 32 × 3, seed 1, 90 updates; not Pre-LN 32 × 3, seed 1, 2 updates"
    )
    # What weights say does not change with the flag, and the loss wired the other way is the loss under the other flag.
    own, wrong = results["checkpoints"][2:4]
    assert (own["difference"], own["shifts"]) == pytest.approx((wrong["difference"], wrong["shifts"]))
    assert wrong["loss_nats"] != own["loss_nats"]
    losses = [(one["loss_nats"], one["rewired_loss_nats"]) for one in (own, wrong)]
    assert losses[0] == pytest.approx(losses[1][::-1], rel=1e-5)
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
