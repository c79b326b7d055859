"""Model types are looked at one by one, each in a process that may hang or end without taking the
study with it.
"""

import json
import os
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `huggingface` extra)"
)

from normscope.placement import registered
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.families import measure, study
from normscope_studies.families.judging import (
    _SourceWiring,
    false_warnings,
    judged_model,
    source_wirings,
)
from normscope_studies.families.measure import in_child
from normscope_studies.families.small import families
from normscope_studies.families.study import _FamiliesConfig

pytestmark = pytest.mark.sampled(one_in=3)

LOOK = {"tokens": 12, "sequences": 2, "largest": 15_000_000, "seed": 0}


def test_a_diagnosed_type_tells_its_placements_and_findings():
    found = measure.looked_at(family="gpt2", **LOOK)
    assert (found["stage"], found["model"], found["placements"]) == (
        "diagnosed",
        "GPT2LMHeadModel",
        ["pre-ln"],
    )
    assert [(one["kind"], one["placement"], one["count"]) for one in found["sublayers"]] == [
        ("attention", "pre-ln", 4),
        ("feed_forward", "pre-ln", 4),
    ]
    assert found["errors"] == found["warnings"] == []


@pytest.mark.parametrize("mode", measure.MODES)
def test_a_type_is_looked_at_in_every_precision(mode):
    found = measure.looked_at(family="bert", mode=mode, **LOOK)
    assert (found["stage"], found["placements"]) == ("diagnosed", ["post-ln"])
    assert found["errors"] == found["warnings"] == []


def test_a_random_order_is_of_its_seed_and_holds_the_same_types():
    whole, again, other = (study._asked_for(_FamiliesConfig(shuffled=seed)) for seed in (1, 1, 2))
    assert whole == again != other
    assert sorted(whole) == sorted(study._asked_for(_FamiliesConfig()))
    assert whole[:7] == study._asked_for(_FamiliesConfig(shuffled=1, first=7))


@pytest.mark.parametrize("wrong", [{"mode": "float16"}, {"first": 0}])
def test_an_unknown_precision_and_none_of_an_order_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"^{name}: "):
        _FamiliesConfig(**wrong)


def test_parts_of_larger_models_are_looked_at_too():
    """A tower that stands in no list of models, and a model whose parts are of any family."""
    assert measure.looked_at(family="clipseg_text_model", **LOOK)["placements"] == ["pre-ln"]
    assert measure.looked_at(family="cohere2_vision", **LOOK)["placements"] == ["parallel"]


@pytest.mark.parametrize("family", ["detr", "mask2former"])
def test_decoders_that_begin_at_zero_and_flags_of_other_parts_are_no_errors(family):
    """The queries of DETR are zeros, and the setting pre_norm of Mask2Former is not its
    backbone's.
    """
    found = measure.looked_at(family=family, **LOOK)
    assert (found["stage"], found["errors"]) == ("diagnosed", [])


@pytest.mark.parametrize(
    ("family", "changes", "stage"),
    [("gpt2", {"largest": 100}, "too large"), ("edgetam_prompt_encoder", {}, "not built")],
)
def test_where_a_type_ended_is_told(family, changes, stage):
    assert measure.looked_at(family=family, **(LOOK | changes))["stage"] == stage


@pytest.mark.parametrize(
    ("raised", "stage", "why"),
    [
        (ValueError("no residual stream"), "refused", "no residual stream"),
        (KeyError("x"), "traceback", "KeyError: "),
    ],
)
def test_what_the_doctor_refuses_and_what_breaks_it_are_told_apart(monkeypatch, raised, stage, why):
    def diagnosing(*_, **__):
        raise raised

    monkeypatch.setattr(measure, "diagnose", diagnosing)
    found = measure.looked_at(family="gpt2", **LOOK)
    assert found["stage"] == stage
    assert why in found["why"]


def test_a_process_that_hangs_or_ends_is_a_result():
    assert in_child(lambda: {"threads": torch.get_num_threads()}, 60.0)["threads"] >= 1
    assert in_child(lambda: time.sleep(600) or {}, 0.1) == "too long"
    assert in_child(lambda: os._exit(3), 60.0) == "the process ended"


def _spin() -> dict[str, object]:
    while True:
        pass


def test_the_limit_is_of_the_processor():
    assert in_child(_spin, 1.0) == "too long"


def found_of(
    placement: str, confidence: str, kind: str = "attention", **changes: object
) -> dict[str, object]:
    one = {
        "kind": kind,
        "placement": placement,
        "confidence": confidence,
        "formula": "x ← x + F(x)",
        "count": 4,
    }
    return {
        "sublayers": [one | changes],
        "errors": [],
        "warnings": [["no-norm", "h", "none"], ["dead", "h", "it is"]],
    }


@pytest.mark.parametrize(
    ("row", "judged"),
    [
        (found_of("sandwich", "unsure"), {"right": 4}),
        (found_of("post-ln", "unsure"), {"wrong": 4}),
        (found_of("post-ln", "sure"), {"wrong and sure": 4}),
        (found_of("", "unsure"), {"unnamed": 4}),
        (found_of("", "unsure", "feed_forward"), {"right": 4}),
        (found_of("post-ln", "sure", "convolution"), {}),
    ],
)
def test_what_is_said_is_judged_by_the_source(row, judged):
    truth = _SourceWiring(
        placements={
            "attention": frozenset({"pre-ln", "sandwich"}),
            "feed_forward": frozenset({"x ← x + F(x)"}),
        },
        read="Block",
        warnings=frozenset({"no-norm"}),
    )
    assert judged_model(row, truth) == judged
    assert false_warnings(row, truth) == ["dead"]


def test_the_truth_is_of_types_that_there_are_and_of_placements_that_are_registered():
    known = source_wirings()
    assert len(known) >= 150
    assert set(known) <= set(families())
    said = {name for one in known.values() for names in one.placements.values() for name in names}
    assert {name for name in said if "←" not in name} <= set(registered())
    assert all(one.read for one in known.values())


def test_types_are_counted_by_where_they_ended_and_not_looked_at_twice(tmp_path: Path, monkeypatch):
    rows = {
        "bert": {"stage": "diagnosed", "placements": ["post-ln"], **found_of("post-ln", "sure")},
        "gpt2": {
            "stage": "diagnosed",
            "placements": ["pre-ln", ""],
            **found_of("post-ln", "sure"),
            "errors": [["dead-sublayer", "h", "it is dead"]],
            "warnings": [],
        },
        "t5": {"stage": "refused", "why": "no residual stream found"},
    }
    # The pieces are named by what measures them, which is the study's own function still.
    monkeypatch.setattr(
        measure, "in_child", lambda function, limit, *, family, **options: rows[family]
    )
    config = _FamiliesConfig(families=tuple(rows))
    run_study(study.STUDY, config, first := Pieces(tmp_path), command="normscope study families")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["counts"] == {
        "looked at": 3,
        "diagnosed": 2,
        "diagnosed, and every stack named": 1,
        "diagnosed, with an error": 1,
        "diagnosed, with a warning": 1,
        "refused": 1,
        "types with their truth": 2,
        "sub-layers right": 4,
        "sub-layers unnamed": 0,
        "sub-layers wrong": 0,
        "sub-layers wrong and sure": 4,
        "sub-layers named for sure": 8,
        "types with a false error": 1,
        "types with a false warning": 1,
    }
    claims = {claim["name"]: claim for claim in results["claims"]}
    assert claims["no error"]["found"].startswith("1 of 2 model types")
    assert claims["named"]["conditions"] == "bert; not gpt2"
    assert claims["sure is right"]["conditions"] == "bert; not gpt2"
    assert claims["no false warning"]["conditions"] == "gpt2; not bert"
    run_study(study.STUDY, config, again := Pieces(tmp_path), command="normscope study families")
    assert (first.made, again.made) == (["bert", "gpt2", "t5"], [])


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        _FamiliesConfig(tokens=1)
