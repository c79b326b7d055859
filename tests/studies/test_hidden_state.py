"""The study of the hidden state: deviations by hand, verdicts that turn, and predictions that are
made fresh.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from normscope.theory.predict import predict
from normscope_studies.engine.claims import Compared, mean_over_draws, root_mean_square, spread_of
from normscope_studies.engine.judging import conditions_of, verdict_of
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.hidden_state import claims as hidden_state_claims, study as hidden_state
from normscope_studies.hidden_state.claims import claims_of, compared
from normscope_studies.hidden_state.config import HiddenStateConfig
from normscope_studies.hidden_state.study import STUDY

TINY = HiddenStateConfig(
    deep=("pre-ln", "rezero"),
    deep_blocks=3,
    deep_width=32,
    deep_draws=3,
    others=("pre-ln",),
    decoders=("pre-ln",),
    pairs=("pre-ln",),
    blocks=2,
    width=16,
    draws=2,
    tokens=4,
    vocabulary=100,
)


def curve(measured, predicted, error=0.0) -> Compared:
    measured = np.array(measured, dtype=np.float64)
    return Compared(
        measured=measured,
        error=np.full_like(measured, error),
        predicted=np.array(predicted, float),
        draws=3,
    )


class TestDeviation:
    def test_mean(self):
        found = mean_over_draws([[1.0, 4.0], [3.0, 8.0]], [2.0, 5.0])
        assert found.measured.tolist() == [2.0, 6.0]
        assert found.error.tolist() == pytest.approx([1.0, 2.0])  # deviations √2 and √8, over √2
        assert found.deviation.tolist() == pytest.approx([0.0, 0.2])
        assert found.relative_error.tolist() == pytest.approx([0.5, 0.4])

    def test_root_mean_square(self):
        found = root_mean_square([[9.0], [41.0]], [4.0])
        assert found.measured.tolist() == [5.0]
        assert found.error.tolist() == pytest.approx([1.6])  # 16 of the mean square, over 2 · 5
        assert found.deviation.tolist() == pytest.approx([0.25])

    def test_nothing_predicted(self):
        assert curve([0.0, 1.0], [0.0, 0.0]).deviation.tolist() == [0.0, np.inf]

    def test_one_draw_has_no_error(self):
        assert np.isnan(mean_over_draws([[1.0]], [1.0]).error).all()

    def test_spread(self):
        curves = {
            "a": [curve([1.02, 2.0], [1.0, 2.0])],
            "b": [curve([1.0], [1.0]), curve([1.0, 1.9], [1.0, 2.0])],
        }
        found = spread_of(curves, limit_percent=3.0, first=1)
        assert (found.where, found.place) == ("b", 2)
        assert found.largest == pytest.approx(5.0)
        assert found.root_mean_square == pytest.approx(np.sqrt((2**2 + 5**2) / 5))
        assert (found.within, found.beyond) == (("a",), ("b",))

    @pytest.mark.parametrize(
        ("limit", "verdict", "conditions"),
        [
            (9.0, "reproduced", ""),
            (5.0, "reproduced under conditions", "a and b; not c"),
            (1.5, "contradicted", "not b and c; but a"),
            (0.5, "contradicted", ""),
        ],
    )
    def test_verdicts(self, limit, verdict, conditions):
        curves = {
            name: [curve([1 + off], [1.0])]
            for name, off in {"a": 0.01, "b": -0.03, "c": 0.07}.items()
        }
        found = spread_of(curves, limit_percent=limit).holds
        assert (verdict_of(found), conditions_of(found)) == (verdict, conditions)

    @pytest.mark.parametrize(("error", "verdict"), [(0.001, "reproduced"), (0.01, "undecided")])
    def test_an_interval_across_the_limit_decides_nothing(self, error, verdict):
        """2 % off, a limit of 3 %, 3 draws, so t = 4.30: 0.1 % of standard error lies within and 1
        % does not.
        """
        found = spread_of({"a": [curve([1.02], [1.0], error)]}, limit_percent=3.0)
        assert verdict_of(found.holds) == verdict
        assert found.standard_error == pytest.approx(100 * error)

    def test_what_is_not_predicted_at_all_is_beyond(self):
        assert spread_of({"a": [curve([0.5], [0.0])]}, limit_percent=3.0).beyond == ("a",)
        assert spread_of({"a": [curve([0.0], [0.0])]}, limit_percent=3.0).within == ("a",)


def drawn_as_predicted(name, case, off=1.0):
    """Draws that agree with the prediction, q and every norm times `off`."""
    stacks = {
        kind: {
            "q": off * np.array(one.q),
            **{w: (off * np.array(norms)) ** 2 for w, norms in one.gradient_norm.items()},
        }
        for kind, one in predict(name, case.model).items()
    }
    return [stacks] * 2


class TestVerdicts:
    @pytest.mark.parametrize(
        ("off", "q", "gradient"), [(1.0, True, True), (1.04, False, True), (0.9, False, False)]
    )
    def test_they_turn(self, off, q, gradient):
        cases = TINY.cases()
        found = {
            c.name: {n: compared(n, c, drawn_as_predicted(n, c, off)) for n in c.placements}
            for c in cases
        }
        claims, data = claims_of(cases, found, TINY)
        by_name = {claim.name: claim.verdict for claim in claims}
        assert len(claims) == len(cases) + 3
        assert (by_name["q, deep encoders, theory's setting"] == "reproduced") == q
        for matrix in ("W_V", "W₁", "W₂"):
            verdict = by_name[f"{matrix}, deep encoders, theory's setting"]
            # ReZero's gradients are 0 in both and stay within any limit: one for it, one against.
            assert verdict == ("reproduced" if gradient else "undecided")
        assert data["deep"]["largest"] == pytest.approx(100 * abs(off - 1))

    def test_what_is_quoted_stands_in_the_data(self):
        cases = TINY.cases()
        found = {
            c.name: {n: compared(n, c, drawn_as_predicted(n, c, 1.0123)) for n in c.placements}
            for c in cases
        }
        claims, data = claims_of(cases, found, TINY)
        assert f"{data['deep']['largest']:.2f} % off" in claims[0].found
        assert (
            f"{data['deep, value']['root_mean_square']:.2f} % root mean square"
            in claims[len(cases)].found
        )


class TestStudy:
    @pytest.mark.thorough
    def test_predictions_are_made_fresh(self, tmp_path, monkeypatch):
        first, _ = run_study(STUDY, TINY, pieces := Pieces(tmp_path), command="")
        assert len(pieces.made) == 6
        stored = (tmp_path / "pieces" / "deep" / "pre-ln.json").read_text("utf-8")
        real = predict

        def doubled(name, model):
            return {
                kind: replace(one, q=2 * np.array(one.q)) for kind, one in real(name, model).items()
            }

        monkeypatch.setattr(hidden_state_claims, "predict", doubled)
        second, page = run_study(STUDY, TINY, pieces := Pieces(tmp_path), command="")
        assert pieces.made == []
        assert (tmp_path / "pieces" / "deep" / "pre-ln.json").read_text("utf-8") == stored
        assert second.claims[0].verdict == "contradicted"
        assert '<span class="word">contradicted</span></span> – q, deep encoders' in page.read_text(
            "utf-8"
        )
        results = json.loads((tmp_path / "results.json").read_text("utf-8"))
        q = results["curves"]["deep"]["pre-ln"]["encoder"]["q"]
        assert len(q["measured"]) == len(q["predicted"]) == 4
        assert q["predicted"][0] == 2.0
        assert {figure.name for figure in first.figures} == {"hidden_state", "gradients"}
        assert first.conditions.keys() >= {"Gradient normalisation", "Logarithm", "Tokens", "Draws"}

    def test_its_scales_are_sound(self):
        for scale in STUDY.scales.values():
            assert all(case.placements for case in scale.cases())
        everywhere = STUDY.scales["cpu"].cases()[1].placements
        assert {"post-ln", "attn-res", "ngpt"} <= set(everywhere)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"draws": 1}, "draws must be at least 2"),
            ({"q_limit_percent": 0.0}, "q_limit_percent must be positive"),
            ({"blocks": 3}, "blocks must be even"),
            ({"deep": ()}, "at least one placement"),
            ({"deep": ("prelm",)}, "unknown placement 'prelm'"),
            ({"others": ("t-fixup",)}, "not defined for encoder-only"),
            ({"width": 15}, "width"),
        ],
    )
    def test_settings_that_it_cannot_take(self, change, message):
        with pytest.raises(ValueError, match=message):
            replace(TINY, **change)


def test_what_theory_refuses_is_left_out_and_said(tmp_path):
    config = replace(TINY, others=("pre-ln", "mhc-deepseek-v4"), width=512)
    found = hidden_state.run(config, Pieces(tmp_path))
    assert list(found.data["curves"]["theory"]) == ["pre-ln"]
    assert found.conditions["Left out"].startswith(
        "Encoders, theory's setting: Manifold-constrained"
    )
    assert "cannot be predicted" in found.conditions["Left out"]
