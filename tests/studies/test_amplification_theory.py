"""The study of changes: what it measures beside what must hold of any update, and verdicts that turn."""

from dataclasses import replace

import numpy as np
import pytest

from normscope.evidence.judging import Verdict
from normscope.theory.predict import ModelSetting
from normscope_studies.amplification_theory.measure import AmplificationTheoryConfig, changes_of
from normscope_studies.amplification_theory.study import STUDY, claims_of, compared
from normscope_studies.engine.pieces import Pieces

MODEL = ModelSetting(blocks=2, width=32, ffn_width=32, tokens=4, vocabulary=50)
TINY = AmplificationTheoryConfig(
    placements=("pre-ln",),
    blocks=(1, 2),
    draws=(2, 2),
    updates=("sgd",),
    width=32,
    tokens=4,
    vocabulary=50,
    predicted_depths=(1, 2, 4),
)


@pytest.fixture(scope="module")
def draws():
    return changes_of("pre-ln", MODEL, ("sgd", "adam", "muon"), 2)


def test_what_holds_of_every_update(draws):
    for draw in draws:
        for one in draw.values():
            # The embedding stays, and so does what the first sub-layer reads.
            assert (one["stream"][0], one["amplified"][0]) == (0.0, 0.0)
            assert one["own"][0] == one["total"][0] > 0
            assert one["loss"] < 0
            assert (len(one["own"]), len(one["stream"])) == (4, 3)
            assert -one["output"] / 3 <= one["output_two"] <= one["output"]


def test_the_orthogonal_step_of_a_matrix_keeps_lengths(draws):
    """Attention's first step under Muon: an isometry of the tokens' span, which the mean over 4 tokens divides by 4."""
    sizes = [draw["muon"]["own"][0] for draw in draws]
    # One gradient for all tokens: of rank 1, it tells the tokens' mean alone; 4 vectors of 32 are not quite orthogonal.
    assert np.mean(sizes) == pytest.approx(0.04 * 32 / 4, rel=0.15)


def test_draws_are_the_same_every_time(draws):
    assert changes_of("pre-ln", MODEL, ("sgd",), 1)[0]["sgd"] == draws[0]["sgd"]


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.REPRODUCED), (2.0, Verdict.CONTRADICTED)])
def test_verdicts_turn_with_what_was_measured(draws, factor, verdict):
    found = compared("pre-ln", MODEL, "sgd", draws)

    def as_if(curve):
        return replace(curve, measured=factor * curve.predicted, error=0 * curve.error)

    claims, data = claims_of({("pre-ln", 2, "sgd"): {what: as_if(curve) for what, curve in found.items()}}, TINY)
    assert [claim.verdict for claim in claims] == [verdict] * 3
    assert data["sgd, own"]["largest"] == pytest.approx(100 * (factor - 1))


def test_a_run(tmp_path):
    findings = STUDY.run(TINY, Pieces(tmp_path))
    assert len(findings.claims) == 3
    deviations, orders = findings.tables
    assert [row[:2] for row in deviations.rows] == [["Pre-LN", "1"], ["Pre-LN", "2"]]
    assert [row[1] for row in orders.rows] == ["sgd", "random"]
    assert [row[-1] for row in orders.rows] == ["", "O(log N)"]
    assert "±" in orders.rows[0][5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draws": (2,)}, "as many numbers as blocks"),
        ({"draws": (1, 2)}, "at least 2"),
        ({"updates": ("adagrad",)}, "adagrad is not one; choose from sgd, adam, muon"),
        ({"updates": ()}, "updates: give one or more"),
        ({"predicted_depths": (1, 2)}, "three different depths"),
        ({"tokens": 40}, "tokens must lie between"),
        ({"limit_percent": 0.0}, "must be positive"),
        ({"placements": ("nowhere",)}, "nowhere"),
    ],
)
def test_what_cannot_be_drawn(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)
