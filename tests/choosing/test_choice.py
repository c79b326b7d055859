"""What the evidence comes to for a case: which of it counts, how near it is, and when it
decides.
"""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

import normscope
from normscope.choosing.case import NEAR, ModelToTrain, distance
from normscope.choosing.choice import EvidenceForModel, choose
from normscope.choosing.evidence import Evidence, EvidenceRow, EvidenceSetting, stored

CASE = ModelToTrain(model="decoder-only", blocks=24, width=1024, optimizer="adam", tokens=5e9)
SETTING = EvidenceSetting(
    name="made",
    result="made",
    title="",
    created="",
    model="decoder-only",
    blocks=(4, 8),
    width=(32, 32),
    tokens=1000,
    updates=10,
    text="",
    unigram_nats=6.0,
)


def finding(mean: float, half_width: float | None, answer: str, **changes: object) -> EvidenceRow:
    values = {
        "question": "no-warmup",
        "placement": "deepnorm",
        "optimizer": "adam",
        "setting": "made",
        "source": [],
    }
    return EvidenceRow(
        **{
            **values,
            "mean": mean,
            "half_width": half_width,
            "answer": answer,
            "seeds": 3,
            **changes,
        }
    )


def chosen(
    *findings: EvidenceRow,
    case: ModelToTrain = CASE,
    settings: tuple[EvidenceSetting, ...] = (SETTING,),
) -> EvidenceForModel:
    evidence = Evidence(
        published_ladders=[],
        settings={one.name: one for one in settings},
        findings=findings,
        rates=[],
        trained=[],
        depths=[],
        depth_blocks=1000,
        advice=[],
        optimizers=["adam", "adamw", "muon"],
    )
    return choose(case, ["deepnorm"], evidence)


def group(choice: EvidenceForModel) -> str:
    return next(one for one in choice.answers if one.question.name == "no-warmup").claims[0].group


SUPPORTED, CONTRADICTED = finding(-0.1, 0.05, "supported"), finding(0.4, 0.1, "contradicted")


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ((), "not known"),
        ((SUPPORTED,), "supported"),
        ((CONTRADICTED,), "contradicted"),
        ((SUPPORTED, CONTRADICTED), "undecided"),
        # A mean on the other side keeps a claim open, one on the same side or between the edges
        # does not.
        ((SUPPORTED, finding(0.3, 0.5, "undecided")), "undecided"),
        ((SUPPORTED, finding(-0.3, 0.5, "undecided")), "supported"),
        ((SUPPORTED, finding(0.05, 0.5, "undecided")), "supported"),
        ((CONTRADICTED, finding(-0.3, 0.5, "undecided")), "undecided"),
        # Neither does one seed, or runs that have learned nothing.
        ((SUPPORTED, finding(0.3, None, "undecided")), "supported"),
        ((SUPPORTED, finding(0.3, 0.5, "undecided", learned=False)), "supported"),
        ((finding(0.3, 0.5, "undecided"),), "undecided"),
    ],
)
def test_one_result_decides_unless_another_points_the_other_way(
    findings: tuple[EvidenceRow, ...], expected: str
) -> None:
    assert group(chosen(*findings)) == group(chosen(*reversed(findings))) == expected


def test_other_optimisers_and_other_kinds_of_model_decide_nothing() -> None:
    muon = finding(-0.1, 0.05, "supported", optimizer="muon")
    choice = chosen(muon)
    assert (group(choice), choice.measured) == ("not known", [])
    assert group(chosen(replace(muon, optimizer="adamw"))) == "supported"
    assert (
        group(chosen(SUPPORTED, settings=(replace(SETTING, model="encoder-only"),))) == "not known"
    )
    assert group(chosen(SUPPORTED, case=replace(CASE, optimizer="muon"))) == "not known"


def test_the_nearest_comes_first_and_says_how_near() -> None:
    far = replace(SETTING, name="far", width=(8, 8))
    choice = chosen(
        finding(0.0, 0.01, "supported", setting="far"), SUPPORTED, settings=(far, SETTING)
    )
    assert [one.setting.name for one in choice.measured] == ["made", "far"]
    assert [one.setting for one in choice.answers[1].claims[0].findings] == ["made", "far"]
    assert choice.measured[0].distance.factors == {"depth": 3.0, "width": 32.0, "tokens": 5e6}
    assert choice.scale("made") == "small-scale"
    near = chosen(SUPPORTED, case=replace(CASE, blocks=6, width=64, tokens=None))
    assert near.scale("made") == "near"
    assert (
        chosen(SUPPORTED, case=replace(CASE, blocks=6, width=4, tokens=None)).scale("made")
        == "other size"
    )


@given(st.integers(1, 200), st.integers(1, 10_000), st.floats(1, 1e13))
def test_a_distance_is_one_within_the_setting_and_near_within_the_factor(
    blocks, width, tokens
) -> None:
    away = distance(
        ModelToTrain(
            model="decoder-only", blocks=blocks, width=width, optimizer="adam", tokens=tokens
        ),
        SETTING,
    )
    assert away.total >= 1
    assert (away.blocks == 1) == (4 <= blocks <= 8)
    low, high = 1000 / NEAR, 1000 * NEAR
    assert away.is_near == (1 <= blocks <= 32 and 8 <= width <= 128 and low <= tokens <= high)
    assert not (away.is_near and away.is_small_scale)


def test_theory_is_that_of_predict() -> None:
    choice = choose(replace(CASE, width=64), ["peri-ln", "rezero"])
    expected = normscope.predict(
        "peri-ln",
        "rezero",
        stack="decoder",
        blocks=24,
        width=64,
        ffn_width=256,
        setting="as-placement",
    )
    for one in choice.theory.foreseen:
        curve = expected[one.placement]
        assert (one.start_square, one.end_square) == (curve.q[0], curve.q[-1])
        assert (one.first_gradient, one.last_gradient) == tuple(
            curve.gradient_norm["ffn_out"][[0, -1]]
        )
    assert "predict peri-ln rezero --stack decoder --blocks 24" in choice.theory.command


@pytest.mark.parametrize(
    ("changes", "placements", "says"),
    [
        ({"optimizer": "muno"}, [], "did you mean 'muon'"),
        ({"model": "decoder"}, [], "did you mean 'decoder-only'"),
        ({"blocks": 0}, [], "blocks must be at least 1"),
        ({"tokens": 0.0}, [], "tokens must be a number of tokens, such as 5e9"),
        ({"tokens": float("nan")}, [], "tokens must be"),
        (
            {},
            ["t-fixup"],
            "t-fixup is not defined for decoder-only models; it is for encoder-decoder",
        ),
        ({}, ["pre-lnn"], "did you mean 'pre-ln'"),
    ],
)
def test_what_is_no_case_is_refused(changes, placements, says) -> None:
    with pytest.raises(ValueError, match=says):
        choose(replace(CASE, **changes), placements)


def test_every_placement_of_the_model_has_one_claim_a_question() -> None:
    choice = choose(CASE)
    for answered in choice.answers:
        names = [claim.placement for claim in answered.claims]
        assert len(names) == len(set(names))
        assert sum(
            len(answered.of(one)) for one in ("supported", "contradicted", "undecided", "not known")
        ) == len(names)
    assert "pre-ln" not in [claim.placement for claim in choice.answers[0].claims]
    assert {one.setting for one in stored().findings} >= {
        one.setting.name for one in choice.measured if one.optimizers
    }
