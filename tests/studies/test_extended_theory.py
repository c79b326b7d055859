"""The study of appendix F: closed forms that measurement must meet, verdicts that turn, and what is
kept.
"""

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from normscope.cli import main as cli
from normscope_studies.engine.estimates import estimate
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.extended_theory import measure as extended_measure, study as extended_theory
from normscope_studies.extended_theory.claims import DECAY, Profile, claims, pre_profile, profile
from normscope_studies.extended_theory.measure import CASES, LETTERS, W2, StackCase, measured
from normscope_studies.extended_theory.study import PRE, STUDY
from normscope_studies.theory import corrected, paper
from normscope_studies.theory.simulation import Simulation

SMOKE = STUDY.scales["smoke"]
SEEDS = 3
ONE_TOKEN = CASES["encoder-1"]


class TestMeasurement:
    def profiles(self, placement: str, blocks: int = 8) -> Profile:
        model = ONE_TOKEN.model(blocks=blocks, width=128, tokens=9, vocabulary=400)
        draws = [measured(placement, {"one": (model, "encoder")}, seed)["one"] for seed in range(6)]
        norms_SL = {name: np.array([draw[name] for draw in draws]) for name in LETTERS}
        return profile(placement, ONE_TOKEN, model, norms_SL)

    def test_one_token_follows_the_stream_in_pre_ln(self):
        """Attention of one token is x W_V and telescopes as the feed-forward does: √(q_L / q_l), q
        = 1 + 3l/2.
        """
        one = self.profiles("pre-ln")
        closed = [math.sqrt((1 + 1.5 * 8) / (1 + 1.5 * block)) for block in range(1, 9)]
        np.testing.assert_allclose(pre_profile(one), closed, rtol=1e-12)
        assert closed[0] > 2.2
        np.testing.assert_allclose(one.relative.mean, closed, rtol=0.15)

    def test_one_token_is_the_same_everywhere_in_post_ln(self):
        one = self.profiles("post-ln")
        np.testing.assert_allclose(one.relative.mean, 1, rtol=0.15)
        assert paper.post_ln_gradient_profile(8)[0] < 0.25

    def test_a_sequence_of_one_token_has_no_pairs(self):
        model = ONE_TOKEN.model(blocks=2, width=16, tokens=5, vocabulary=20)
        drawn = Simulation("post-ln", model).draw(1)["encoder"]
        assert np.isnan(drawn.p).all()
        assert np.isfinite(drawn.q).all()

    def test_the_share_of_cross_attention_is_that_of_alike_tokens_at_most(self):
        """Values keep the power they read in the theory's setting and halve it in the paper's."""
        for key, most in (("crossed", 1.0), ("paper", 0.5)):
            case = CASES[key]
            model = case.model(blocks=6, width=16, tokens=8, vocabulary=64)
            found = profile(
                "post-ln", case, model, {name: np.ones((2, 6)) for name in LETTERS}
            ).cross_share
            assert most / 8 < found < most
        assert self.profiles("post-ln", 2).cross_share == 0


def made_up(placement: str, case: StackCase, blocks: int, norms_L, scatter: float) -> Profile:
    noise = 1 + scatter * np.random.default_rng(blocks).standard_normal((SEEDS, blocks))
    norms_SL = dict.fromkeys(LETTERS, np.asarray(norms_L) * noise)
    shares = {"crossed": 0.9, "paper": 0.45}
    return Profile(
        placement=placement,
        case=case,
        model=case.model(blocks=blocks, width=64, tokens=16, vocabulary=100),
        norms_SL=norms_SL,
        predicted_L=dict.fromkeys(LETTERS, np.asarray(norms_L, dtype=float)),
        cross_share=next((share for key, share in shares.items() if CASES[key] == case), 0.0),
    )


def verdicts(*, post_slope, pre_profile_of, scatter=1e-3):
    """Of made-up curves: Post-LN decays by `post_slope(case)` a block, Pre-LN is
    `pre_profile_of(case, blocks)`.
    """
    post, pre = [], []
    for key, case in CASES.items():
        for blocks in (6, 12, 24):
            post_L = np.exp(post_slope(key) * (np.arange(blocks) - blocks + 1))
            post.append(made_up("post-ln", case, blocks, post_L, scatter))
            pre.append(made_up("pre-ln", case, blocks, pre_profile_of(case, blocks), scatter))
    return {claim.name: claim for claim in claims(post, pre)}


def as_corrected(case: StackCase, blocks: int):
    stream = corrected.pre_ln_stream(
        blocks, tokens=case.model(blocks=2, width=8, tokens=16, vocabulary=9).tokens
    )
    return [1 / math.sqrt(q) for q, _ in stream[1:]]


def as_the_paper_has_it(case: StackCase, blocks: int):
    return np.full(blocks, blocks**-0.5)


def cross_slope(key: str) -> float:
    return 0.5 * math.log1p({"crossed": 0.9, "paper": 0.45}.get(key, 0.0))


class TestVerdicts:
    def test_as_the_corrected_theory_has_it(self):
        found = verdicts(post_slope=cross_slope, pre_profile_of=as_corrected)
        decay = found["Appendix F, Post-LN: exponential decay"]
        assert decay.verdict == "contradicted"  # in most settings
        assert decay.conditions.endswith(
            "; but decoder with cross-attention and the paper's decoder"
        )
        assert (
            found["Corrected, Post-LN: decoders decay through cross-attention"].verdict
            == "reproduced"
        )
        assert found["Corrected, Post-LN: no decay without cross-attention"].verdict == "reproduced"
        assert found["Appendix F, Pre-LN: independent of the layer"].verdict == "contradicted"
        assert found["Corrected, Pre-LN: as 1/√q"].verdict == "reproduced"
        assert found["Section 3.3, Pre-LN: 1/√L for all parameters"].verdict == "contradicted"
        assert (
            found["Corrected, Pre-LN: the bottom does not fall with depth"].verdict == "reproduced"
        )

    def test_as_the_paper_has_it(self):
        found = verdicts(post_slope=lambda key: DECAY, pre_profile_of=as_the_paper_has_it)
        assert found["Appendix F, Post-LN: exponential decay"].verdict == "reproduced"
        assert (
            found["Corrected, Post-LN: no decay without cross-attention"].verdict == "contradicted"
        )
        assert (
            found["Corrected, Post-LN: decoders decay through cross-attention"].verdict
            != "reproduced"
        )
        assert found["Appendix F, Pre-LN: independent of the layer"].verdict == "reproduced"
        assert found["Corrected, Pre-LN: as 1/√q"].verdict == "contradicted"
        for name in ("1/√L at the top", "1/√L for all parameters"):
            assert found[f"Section 3.3, Pre-LN: {name}"].verdict == "reproduced"
        assert (
            found["Corrected, Pre-LN: the bottom does not fall with depth"].verdict
            == "contradicted"
        )

    def test_a_top_that_stays_is_not_one_over_the_root_of_depth(self):
        found = verdicts(
            post_slope=cross_slope, pre_profile_of=lambda case, blocks: np.ones(blocks)
        )
        assert found["Section 3.3, Pre-LN: 1/√L at the top"].verdict == "contradicted"

    def test_scattered_seeds_reproduce_neither(self):
        found = verdicts(post_slope=lambda key: DECAY / 2, pre_profile_of=as_corrected, scatter=0.2)
        assert found["Appendix F, Post-LN: exponential decay"].verdict != "reproduced"
        assert found["Prediction: every block"].verdict == "undecided"


@pytest.fixture
def _without_figures(monkeypatch):
    """They take most of a small study's time, and the verb's test draws them."""
    monkeypatch.setattr(extended_theory, "figures", lambda *_: [])


class TestStudy:
    @pytest.mark.usefixtures("_without_figures")
    def test_pieces_are_measured_once_and_more_seeds_add_to_them(self, tmp_path):
        first = Pieces(tmp_path)
        found, page = run_study(STUDY, SMOKE, first, command="normscope study extended-theory")
        assert len(first.made) == 2 * SMOKE.seeds
        assert page.is_file()
        again = Pieces(tmp_path)
        assert STUDY.run(SMOKE, again).claims == found.claims
        assert again.made == []
        more = Pieces(tmp_path)
        STUDY.run(replace(SMOKE, seeds=SMOKE.seeds + 1), more)
        assert more.made == [
            f"{placement}/seed-{SMOKE.seeds + 1}" for placement in ("post-ln", "pre-ln")
        ]

    @pytest.mark.thorough
    @pytest.mark.usefixtures("_without_figures")
    def test_other_sizes_are_measured_again(self, tmp_path):
        STUDY.run(SMOKE, Pieces(tmp_path))
        other = Pieces(tmp_path)
        STUDY.run(replace(SMOKE, tokens=4), other)
        assert len(other.made) == 2 * SMOKE.seeds

    @pytest.mark.usefixtures("_without_figures")
    def test_a_killed_run_goes_on(self, tmp_path, monkeypatch):
        def stopping(placement, *arguments):
            if placement == PRE:
                raise KeyboardInterrupt
            return Simulation(placement, *arguments)

        killed = Pieces(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(extended_measure, "Simulation", stopping)
            with pytest.raises(KeyboardInterrupt):
                STUDY.run(SMOKE, killed)
        rest = Pieces(tmp_path)
        STUDY.run(SMOKE, rest)
        assert (len(killed.made), len(rest.made)) == (SMOKE.seeds, SMOKE.seeds)

    @pytest.mark.thorough
    def test_the_verb(self, tmp_path, monkeypatch, capsys):
        out = tmp_path / "out"
        arguments = [
            "study",
            "extended-theory",
            "--scale",
            "smoke",
            "--set",
            "seeds=3",
            "--out",
            str(out),
        ]
        monkeypatch.setattr(sys, "argv", ["normscope", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code
        said = capsys.readouterr().out
        results = json.loads((out / "results.json").read_text())
        assert all(claim["name"] in said for claim in results["claims"])
        assert {path.name for path in out.glob("*.svg")} == {
            "encoders.svg",
            "decoders.svg",
            "ends.svg",
        }
        stacks = {(one["placement"], one["case"], one["blocks"]) for one in results["profiles"]}
        assert len(stacks) == len(results["profiles"]) == 2 * len(CASES) * 2
        one = results["profiles"][0]
        assert one["gradient_norm"][W2]["seeds"] == 3
        assert len(one["predicted"][W2]) == one["blocks"]

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"encoder_depths": (4, 2)}, "rising"),
            ({"decoder_depths": (1, 2)}, "from 2 on"),
            ({"width": 18}, "multiple of 4"),
            ({"seeds": 1}, "seeds must be at least 2"),
            ({"vocabulary": 4}, "tokens that differ"),
        ],
    )
    def test_what_cannot_be_measured_is_refused(self, changes, match):
        with pytest.raises(ValueError, match=match):
            replace(SMOKE, **changes)


def test_the_slope_of_a_profile_is_per_block():
    one = made_up("post-ln", CASES["encoder"], 10, np.exp(0.3 * np.arange(10)), 0.0)
    assert one.slope().mean == pytest.approx(0.3, rel=1e-12)
    assert estimate(one.norms_SL[W2]).mean[0] == 1
