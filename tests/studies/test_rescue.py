"""Failed trainings and their remedies: what counts as failed and cured, and what is put first."""

import json
import math
from pathlib import Path

import pytest
import torch

from normscope.history.remedies import Cured, Remedy, Situation
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.rescue.cases import HALF, Levels, RescueCase, counted, first_by_others
from normscope_studies.rescue.measure import RescueConfig, RescueTraining, trained
from normscope_studies.rescue.models import FAMILIES, WIRINGS, RescueModel
from normscope_studies.rescue.study import STUDY

LEVELS = Levels(unigram_nats=3.0, sound_nats={"gpt": 1.0, "llama": 2.0})


def case(
    family: str, *, ended: dict[str, float], situation: Situation = Situation.NORMED
) -> RescueCase:
    remedies = [name for name in ended if name not in ("", HALF)]
    return RescueCase(
        asked=RescueTraining(family=family, wiring="post-ln", rate=0.1, seed=1),
        said={"situation": str(situation), "remedies": remedies},
        losses={name: [9.0, *[nats] * 20] for name, nats in ended.items()},
    )


def test_failed_and_cured_are_shares_of_the_way_to_a_sound_training() -> None:
    assert LEVELS.failed("gpt", [2.51] * 20)
    assert not LEVELS.failed("gpt", [2.49] * 20)
    assert LEVELS.cured("gpt", [1.99] * 20)
    assert not LEVELS.cured("gpt", [2.01] * 20)
    assert LEVELS.cured("llama", [2.49] * 20)
    for losses in ([], [1.0, None], [1.0] * 30 + [None]):
        assert LEVELS.failed("gpt", losses)
        assert not LEVELS.cured("gpt", losses)


def test_no_case_speaks_for_its_own_family() -> None:
    cases = [
        case("gpt", ended={"": 3.0, "rate": 1.0, "placement": 3.0}),
        case("llama", ended={"": 3.0, "rate": 3.0, "placement": 2.0}),
    ]
    by_family = [first_by_others(one, cases, LEVELS) for one in cases]
    assert by_family == [Remedy.PLACEMENT, Remedy.RATE]


def test_what_did_not_fail_counts_for_nothing() -> None:
    cases = [
        case("gpt", ended={"": 3.0, "rate": 1.0, "warm-up": 3.0}),
        case("gpt", ended={"": 3.0, "rate": 3.0}),
        case("gpt", ended={"": 1.0, "rate": 1.0}),
        case("gpt", ended={"": 3.0, "mend": 1.0}, situation=Situation.SKIP_FAULT),
    ]
    assert counted(cases, LEVELS) == {
        Situation.NORMED: {Remedy.RATE: Cured(1, 2), Remedy.WARMUP: Cured(0, 1)},
        Situation.SKIP_FAULT: {Remedy.MEND: Cured(1, 1)},
    }


def test_the_fault_is_mended_first_whatever_was_counted() -> None:
    wrong = case("gpt", ended={"": 3.0, "mend": 3.0, "rate": 1.0}, situation=Situation.SKIP_FAULT)
    assert wrong.first(counted([wrong], LEVELS)) is Remedy.MEND


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sound_wiring_is_torchs_own_pre_norm_and_post_norm(family: str) -> None:
    """Blocks of the study beside the equations, written once more."""
    torch.manual_seed(0)
    sizes = {"vocabulary": 9, "width": 16, "heads": 2, "tokens": 5}
    ids = torch.randint(9, (2, 5))
    for wiring in ("pre-ln", "post-ln"):
        model = RescueModel(family, wiring, **sizes).double()
        x = model.embedding(ids)
        if model.positions is not None:
            x = x + model.positions.weight[:5]
        for block in model.blocks:
            for f, norm in ((block.attention, block.norm1), (block.feed_forward, block.norm2)):
                x = x + f(norm(x)) if wiring == "pre-ln" else norm(x + f(x))
        torch.testing.assert_close(model(ids), model.head(model.norm(x)), rtol=1e-12, atol=1e-12)


def test_rotations_tell_places_by_their_distance_alone() -> None:
    """Queries and keys of one token give scores that depend on how far apart they stand."""
    torch.manual_seed(0)
    model = RescueModel("llama", "pre-ln", vocabulary=9, width=16, heads=2, tokens=6).double()
    attention = model.blocks[0].attention
    row_1HTK = torch.randn(1, 2, 1, 8, dtype=torch.float64).expand(1, 2, 6, 8)
    scores = attention._turned(row_1HTK) @ attention._turned(row_1HTK).transpose(-2, -1)
    for distance in range(6):
        along = scores.diagonal(distance, -2, -1)
        # The angles are float32, 6 of them at most.
        torch.testing.assert_close(along, along[..., :1].expand_as(along), rtol=0, atol=1e-5)


def test_a_transplant_that_is_refused_is_told_and_nothing_is_trained() -> None:
    asked = RescueTraining(family="gpt", wiring="deepnorm", rate=1e-3, seed=1, to="pre-ln")
    found = trained(asked, RescueConfig(updates=40, width=16))
    assert found["losses"] == []
    assert "factors" in found["refused"]


def test_every_fault_has_a_wiring_that_was_meant_and_is_sound() -> None:
    for name, wiring in WIRINGS.items():
        assert bool(wiring.mended) == (name not in ("post-ln", "pre-ln", "deepnorm")), name
        assert not WIRINGS[wiring.mended or "pre-ln"].mended


def test_a_short_training_is_asked_and_its_answer_is_kept(tmp_path: Path) -> None:
    config = RescueConfig(families=("gpt",), wirings=("post-ln",), updates=40, width=8)
    pieces = Pieces(tmp_path, processes=1)
    run_study(STUDY, config, pieces, command="normscope study rescue")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["rate"] for row in results["trainings"]] == [1e-2, 3e-2]
    assert all(math.isfinite(row["ended_nats"]["as it was"]) for row in results["trainings"])
    assert results["failed"] == sum(row["failed"] for row in results["trainings"])
    again = Pieces(tmp_path, processes=1)
    run_study(STUDY, config, again, command="normscope study rescue")
    assert again.made == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"families": ("t5",)}, "families: t5 is not one; choose from gpt"),
        ({"wirings": ("post-ln", "post-ln")}, "wirings"),
        ({"updates": 10}, "at least 40"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RescueConfig(**changes)  # type: ignore[arg-type]
