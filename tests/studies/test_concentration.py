"""The study of concentration: counts by hand, verdicts that turn, and the counterexample."""

import json
import math
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch

from normscope.errors import UserError
from normscope.measure import Estimate
from normscope_studies.concentration.claims import (
    bounded,
    chi_square,
    constant,
    lower_tail,
    shrinking,
    theorem_1,
)
from normscope_studies.concentration.measure import (
    ConcentrationConfig,
    gaussians,
    measure_model,
    summarised,
)
from normscope_studies.concentration.study import STUDY, estimated
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.theory import corrected, paper

TINY = ConcentrationConfig(
    toy_pairs=40,
    blocks=2,
    width=32,
    ffn_width=32,
    heads=2,
    max_tokens=200,
    batches=1,
    seeds=2,
    vectors=2000,
)


def numbers(
    config, delta_above=0.0, delta_outside=0.0, deviation=0.05, shrunk=0.0
) -> dict[str, Estimate]:
    """What one depth would give, the same δ at every ε."""
    values = {
        "mean": 1.5,
        "deviation": deviation,
        "above": [delta_above] * len(config.epsilons),
        "outside": [delta_outside] * len(config.epsilons),
        "epsilon_above": 0.11,
        "epsilon_outside": 0.12,
        "shrunk": shrunk,
    }
    return {
        name: Estimate(count=2, mean=(at := np.asarray(value)), deviation=at, half_width=0 * at)
        for name, value in values.items()
    }


def faked(config, above, outside=0.0, **changes) -> dict:
    """δ above by depth, the same in both stacks; the hidden state a norm's output."""
    still = [numbers(config, deviation=1e-7) for _ in range(config.blocks + 1)]
    reads = [numbers(config, delta, outside, **changes) for delta in above]
    return {
        "post-ln": {
            stack: {"state": still, "read": reads, "last": reads[-1:]}
            for stack in ("encoder", "decoder")
        }
    }


@pytest.fixture(scope="module")
def models():
    corpus = TINY.open_corpus()
    return {
        name: measure_model(TINY, name, corpus, 1)
        for name in ("post-ln", "pre-ln", "hybrid-norm", "rezero")
    }


AT_1, AT_2 = (
    f"in the encoder at depth {depth} and in the decoder at depth {depth}" for depth in (1, 2)
)


class TestSummary:
    def test_by_hand(self):
        values = torch.tensor([0.05, 0.8, 0.95, 1.0, 1.05, 1.1, 1.3, 1.75], dtype=torch.float64)
        config = replace(TINY, delta=0.25)
        found = summarised(values, config)
        at = config.epsilons.index(0.1)
        assert found["mean"] == pytest.approx(1.0)
        assert found["above"][at] == 3 / 8 or found["above"][at] == 2 / 8  # 1.1 lies on the edge
        assert found["outside"][config.epsilons.index(0.12)] == 4 / 8
        assert found["shrunk"] == 1 / 8
        assert found["epsilon_above"] == pytest.approx(float(torch.quantile(values, 0.75)) - 1)
        assert found["deviation"] == pytest.approx(float(values.std(correction=0)))

    def test_gaussian_vectors_have_the_chi_squares_tails(self):
        config = replace(TINY, vectors=20_000)
        found = gaussians(config)
        for i, epsilon in enumerate(config.epsilons):
            lower, upper = corrected.chi_square_tails(width=config.width, epsilon=epsilon)
            error = math.sqrt(0.25 / config.vectors)
            assert found["above"][i] == pytest.approx(upper, abs=4 * error)
            assert found["outside"][i] == pytest.approx(lower + upper, abs=4 * error)


class TestVerdicts:
    @pytest.mark.parametrize(
        ("above", "verdict", "conditions"),
        [
            ([0.1, 0.125], "reproduced", ""),
            ([0.2, 0.1], "undecided", f"{AT_2}; not {AT_1}"),
            ([0.2, 0.13], "contradicted", ""),
        ],
    )
    def test_bounded(self, above, verdict, conditions):
        made = {claim.name: claim for claim in bounded(TINY, faked(TINY, above, outside=0.9))}
        still, one, two = made.values()
        assert (still.name, still.verdict) == ("Bounded: Post-LN, hidden state", "reproduced")
        assert "one-sided" in one.name
        assert "(x^{post,5})" in one.name
        assert (one.verdict, one.conditions) == (verdict, conditions)
        assert two.verdict == "contradicted"

    def test_a_stack_whose_depths_agree_is_named_whole(self):
        found = faked(TINY, [0.1, 0.1])
        found["post-ln"]["decoder"]["read"] = [numbers(TINY, 0.2), numbers(TINY, 0.2)]
        (claim,) = [claim for claim in bounded(TINY, found) if "one-sided" in claim.name]
        assert claim.conditions == "in the encoder; not in the decoder"

    def test_what_is_constant(self):
        stacks = faked(TINY, [0.1, 0.1])["post-ln"]
        assert constant(stacks, "state")
        assert not constant(stacks, "read")
        stacks["decoder"]["state"][2] = numbers(TINY, deviation=0.01)
        assert not constant(stacks, "state")

    def test_theorem_1(self):
        (claim,) = theorem_1(TINY, faked(TINY, [0.5, 0.125], outside=0.2))
        assert "0.765" in claim.statement
        assert claim.verdict == "reproduced"
        assert (
            "Post-LN: δ = 0.125 gives 0.765; with both sides, δ = 0.200 gives 0.790 for one"
            in claim.found
        )
        assert claim.found.endswith("0.000 for the mean over 16.")
        assert theorem_1(TINY, faked(TINY, [0.1, 0.13]))[0].verdict == "contradicted"
        nothing = faked(TINY, [0.1, 0.1])
        for stack in nothing["post-ln"].values():
            stack["last"] = []
        assert theorem_1(TINY, nothing) == []

    @pytest.mark.parametrize(
        ("shrunk", "verdict"), [(0.0, "reproduced"), (0.09, "reproduced"), (0.2, "contradicted")]
    )
    def test_shrinking(self, shrunk, verdict):
        claim = shrinking(TINY, faked(TINY, [0.1, 0.1], shrunk=shrunk))
        assert claim.verdict == verdict
        assert (
            "So are all" if shrunk == 0 else f"at least {100 * (1 - shrunk):.2f} %"
        ) in claim.found

    def test_the_counterexample(self, monkeypatch):
        claim = lower_tail(TINY)
        assert claim.verdict == "contradicted"
        assert claim.statement.endswith("= 0.1.")
        assert (
            "is (0.1, 0.001)-bounded, and at most EZ / 10 with probability 0.999 (" in claim.found
        )
        assert float(claim.found.partition("0.999 (")[2][:6]) == pytest.approx(0.999, abs=0.0005)
        assert claim.found.endswith("this Z is not bounded.")
        monkeypatch.setattr(paper, "is_bounded", lambda *_, **__: False)
        assert lower_tail(TINY).verdict == "reproduced"

    def test_chi_square(self):
        gaussian = gaussians(TINY)
        claim = chi_square(TINY, gaussian)
        assert claim.verdict == "reproduced"
        assert f"δ = {math.exp(-32 * 0.01 / 8):.3f}; " in claim.found
        assert (
            chi_square(TINY, gaussian | {"above": [1.0] * len(TINY.epsilons)}).verdict
            == "contradicted"
        )

    def test_of_the_papers_width(self):
        """exp(-512 · 0.01 / 8) = 0.527; exactly 0.058 above and 0.11 on both sides."""
        config = replace(TINY, width=512, vectors=10)
        claim = chi_square(config, {"above": [0.0] * 12, "above_error": [0.1] * 12})
        assert "it allows δ = 0.527; exactly it is 0.0582, " in claim.found
        assert "both sides together 0.1091" in claim.found

    def test_an_interval_across_the_limit_decides_nothing(self):
        """0.12 ± 0.01 against 0.125, where 0.12 alone would read reproduced, and 0.13 ± 0.01
        not.
        """
        found = faked(TINY, [0.12, 0.13])
        for stack in found["post-ln"].values():
            for one in stack["read"]:
                above = one["above"]
                one["above"] = Estimate(
                    count=2,
                    mean=above.mean,
                    deviation=above.deviation,
                    half_width=0 * above.mean + 0.01,
                )
        (claim,) = [claim for claim in bounded(TINY, found) if "one-sided" in claim.name]
        assert (claim.verdict, claim.conditions) == ("undecided", "")
        assert theorem_1(TINY, found)[0].verdict == "undecided"


class TestMeasured:
    def test_post_ln(self, models):
        for stack in ("encoder", "decoder"):
            of = models["post-ln"][stack]
            assert [len(of[quantity]) for quantity in ("state", "read", "last")] == [3, 2, 1]
            assert all(one["mean"] == pytest.approx(1, abs=1e-4) for one in of["state"][1:])
            assert of["last"] == of["read"][-1:]
            assert all(1 < one["mean"] < 2 and one["deviation"] > 0.01 for one in of["read"])

    def test_pre_ln(self, models):
        for stack in ("encoder", "decoder"):
            of = models["pre-ln"][stack]
            means = [one["mean"] for one in of["state"]]
            assert means == sorted(means)
            assert of["last"] == of["state"][-1:]
            # x^{pre,3} lies between the state before the block and the one after it.
            assert all(
                0.95 * a < one["mean"] < 1.05 * b
                for a, one, b in zip(means, of["read"], means[1:], strict=False)
            )

    def test_others(self, models):
        """Where the feed-forward has no norm there is nothing that it reads; a norm after the stack
        still reads.
        """
        assert models["rezero"]["encoder"]["read"] == models["rezero"]["encoder"]["last"] == []
        assert models["hybrid-norm"]["decoder"]["read"] == []
        assert (
            models["hybrid-norm"]["decoder"]["last"]
            == models["hybrid-norm"]["decoder"]["state"][-1:]
        )
        claims = bounded(TINY, {"rezero": estimated([models["rezero"]] * 2)})
        assert {claim.name.partition(": ")[2] for claim in claims} == {"ReZero, hidden state"}

    def test_bits(self, models):
        assert measure_model(TINY, "pre-ln", TINY.open_corpus(), 1) == models["pre-ln"]
        wet = measure_model(replace(TINY, dropout=0.3), "pre-ln", TINY.open_corpus(), 1)
        assert (
            wet["encoder"]["state"][0]["deviation"]
            > models["pre-ln"]["encoder"]["state"][0]["deviation"]
        )


class TestStudy:
    def test_from_measurement_to_page(self, tmp_path):
        found, page = run_study(STUDY, TINY, pieces := Pieces(tmp_path), command="")
        assert pieces.made == [
            f"{name}/seed-{i}" for name in ("post-ln", "pre-ln") for i in (1, 2)
        ] + ["gaussian"]
        results = json.loads((tmp_path / "results.json").read_text("utf-8"))
        assert len(results["found"]["pre-ln"]["decoder"]["state"]) == 3
        html = page.read_text("utf-8")
        assert all(
            f"{claim.verdict}</span></span> – {claim.name}" in unescape(html)
            for claim in found.claims
        )
        assert {
            "Z",
            "Seeds",
            "Spread",
            "Tokens",
            "Logarithm",
            "Gradient normalisation",
        } <= found.conditions.keys()
        run_study(
            STUDY,
            replace(TINY, placements=("pre-ln",), seeds=3),
            pieces := Pieces(tmp_path),
            command="",
        )
        assert pieces.made == ["pre-ln/seed-3"]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"seeds": 1}, "seeds must be at least 2"),
            ({"epsilon": 1.0}, "epsilon must lie between 0 and 1"),
            ({"placements": ()}, "at least one name"),
            ({"placements": ("prelm",)}, "unknown placement 'prelm'"),
            ({"heads": 3}, "multiple of heads=3"),
            ({"dropout": 1.0}, "dropout must lie in"),
        ],
    )
    def test_settings_that_it_cannot_take(self, change, message):
        with pytest.raises(ValueError, match=message):
            replace(TINY, **change)

    def test_a_corpus_that_is_not_there(self, tmp_path):
        with pytest.raises(UserError, match="no corpus at"):
            run_study(
                STUDY, replace(TINY, corpus=str(tmp_path / "none")), Pieces(tmp_path), command=""
            )
