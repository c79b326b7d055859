"""The depth study: curves with a closed form, what is read again and what is not, and its data,
figure and verb.
"""

import itertools
import json
import math
import re
import sys
from pathlib import Path

import pytest

from normscope.cli import main as cli
from normscope.errors import UserError
from normscope.placement import Placement, register, registry
from normscope_studies.depth import (
    STUDY,
    _Behaviour,
    _DepthConfig,
    behaviour,
    bundled,
    exponent,
    picture,
)
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import configured, run_study
from normscope_studies.theory import simulation
from normscope_studies.theory.simulation import encoder_placements


def small(*placements: str, **changes: object) -> _DepthConfig:
    sizes = {
        "blocks": 12,
        "width": 16,
        "ffn_width": 32,
        "heads": 2,
        "seeds": 2,
        "sentence_tokens": 5,
    }
    return _DepthConfig(placements=placements, **{**sizes, **changes})


def hidden_rms(placement: str, config: _DepthConfig, seed: int) -> list[float]:
    """Of one seed."""
    sizes = {
        name: getattr(config, name)
        for name in ("initialisation", "sentences", "sentence_tokens", "depths")
    }
    return simulation.hidden_rms(placement, config.shape, [seed], **sizes)[0]


def run(config: _DepthConfig, folder: Path) -> tuple[dict, list[str]]:
    run_study(STUDY, config, pieces := Pieces(folder), command="normscope study depth")
    return json.loads((folder / "results.json").read_text(encoding="utf-8")), pieces.made


def theory(**changes: object) -> _DepthConfig:
    """The setting of Xiong et al. 2020, section 3.3: W_Q = W_K = 0, every matrix from N(0, 1/d),
    one head.
    """
    sizes = {"blocks": 40, "width": 64, "ffn_width": 64, "heads": 1, "initialisation": "theory"}
    return _DepthConfig(placements=("pre-ln", "post-ln", "rezero"), **{**sizes, **changes})


class TestClosedForms:
    def test_pre_ln_grows_by_three_halves_a_block_where_a_token_is_alone(self):
        """Attention of one token is x W_V: LN gives d, W_V keeps it, ReLU halves it: E‖x_l‖² = (1 +
        3l/2) d.
        """
        config, seeds = theory(sentences=48, sentence_tokens=1), 8
        curves = [hidden_rms("pre-ln", config, seed) for seed in range(seeds)]
        for i, blocks in enumerate(config.depths):
            squares = [curve[i] ** 2 for curve in curves]
            # The tokens of a draw share its weights: each ‖x_l‖² spreads by about √(2/d) of itself.
            spread_of_mean = math.sqrt(2 / 64 / seeds)
            assert math.fsum(squares) / seeds == pytest.approx(
                1 + 1.5 * blocks, rel=3 * spread_of_mean
            )

    def test_pre_ln_keeps_between_the_papers_bounds_where_tokens_are_averaged(self):
        """Section 3.3, eq. 20: the feed-forward adds d/2, attention between 0 and d; depth counts
        completed blocks.
        """
        config = theory(sentences=4, sentence_tokens=12)
        curves = [hidden_rms("pre-ln", config, seed) for seed in range(3)]
        for i, blocks in enumerate(config.depths[5:], 5):
            square = sum(curve[i] ** 2 for curve in curves) / 3
            assert 0.9 * (1 + blocks / 2) < square < 1 + 1.5 * blocks

    def test_rezero_does_not_move_at_all(self):
        curve = hidden_rms("rezero", theory(), 1)
        assert curve == [curve[0]] * len(curve)

    def test_post_ln_stays_at_one(self):
        curve = hidden_rms("post-ln", theory(), 1)
        assert curve[0] == pytest.approx(1, rel=0.1)  # x_0 is drawn from N(0, 1)
        # The norm divides by √(σ² + 1e-5) where σ² is at least about 1.
        assert curve[1:] == pytest.approx([1] * (len(curve) - 1), abs=1e-5)

    def test_admin_is_profiled(self, monkeypatch):
        profiled, plain = hidden_rms("admin", small("admin"), 1), []
        monkeypatch.setattr(simulation, "profile", lambda stack, run: plain.append(stack))
        assert hidden_rms("admin", small("admin"), 1) != profiled
        assert len(plain) == 1


class TestBehaviour:
    DEPTHS = _DepthConfig(placements=("pre-ln",)).depths

    def curve(self, f) -> list[float]:
        return [f(max(at, 1)) for at in self.DEPTHS]

    @pytest.mark.parametrize(
        ("f", "expected", "slope"),
        [
            (lambda at: 1.0, _Behaviour.HELD, 0),
            (lambda at: 0.98, _Behaviour.STILL, 0),
            (lambda at: math.sqrt(1 + 1.5 * at), _Behaviour.GROWS, 0.5),
            (lambda at: 0.5 / at, _Behaviour.FALLS, -1),
            (lambda at: None if at > 700 else 2.0**at, _Behaviour.OVERFLOWS, None),
        ],
    )
    def test_named(self, f, expected, slope):
        values = self.curve(f)
        assert behaviour(self.DEPTHS, values) == expected
        assert exponent(self.DEPTHS, values) == (
            None if slope is None else pytest.approx(slope, abs=0.01)
        )

    def test_the_recorded_depths(self):
        assert self.DEPTHS[:21] == list(range(21))
        assert self.DEPTHS[-1] == 1000
        assert {100, 316} <= set(self.DEPTHS)
        assert all(a < b for a, b in itertools.pairwise(self.DEPTHS))
        assert small("pre-ln", blocks=1).depths == [0, 1]


class TestStudy:
    def test_data_and_figure(self, tmp_path):
        found, made = run(small("pre-ln", "post-ln"), tmp_path)
        assert made == ["pre-ln", "post-ln"]
        assert [curve["name"] for curve in found["placements"]] == ["pre-ln", "post-ln"]
        pre = found["placements"][0]
        assert len(pre["seeds_rms"]) == 2
        assert pre["seeds_rms"][0] == [
            float(f"{x:.6g}") for x in hidden_rms("pre-ln", small("pre-ln"), 1)
        ]
        assert pre["mean_rms"][5] == pytest.approx(
            (pre["seeds_rms"][0][5] + pre["seeds_rms"][1][5]) / 2, rel=1e-5
        )
        assert found["settings"]["blocks"] == 12
        assert {"torch", "processor", "threads", "normscope"} <= found["environment"].keys()
        assert found["commands"] == ["normscope study depth"]
        drawn = (tmp_path / "hidden_rms.svg").read_text(encoding="utf-8")
        assert "what grows: Pre-LN " in drawn
        assert "stays at 1: Post-LN " in drawn

    def test_what_is_there_is_not_measured_again(self, tmp_path):
        config = small("pre-ln", "post-ln")
        first, _ = run(small("pre-ln"), tmp_path)
        before = (tmp_path / "pieces" / "pre-ln.json").stat().st_mtime_ns
        found, made = run(config, tmp_path)
        assert made == ["post-ln"]
        assert (tmp_path / "pieces" / "pre-ln.json").stat().st_mtime_ns == before
        assert found["placements"][0] == first["placements"][0]
        assert run(config, tmp_path)[1] == []

    @pytest.mark.parametrize(
        "change", [{"seeds": 3}, {"blocks": 5}, {"initialisation": "xavier-normal"}]
    )
    def test_other_settings_are_measured(self, tmp_path, change):
        run(small("pre-ln"), tmp_path)
        found, made = run(small("pre-ln", **change), tmp_path)
        assert made == ["pre-ln"]
        assert found["settings"].items() >= change.items()

    def test_another_formula_of_that_name_is_measured(self, tmp_path, monkeypatch):
        monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

        def placement(scale: float) -> type[Placement]:
            def join(self, x, sublayer, norm):
                return scale * x + sublayer(norm(x))

            words = {
                "name": "own-depth",
                "title": "Own",
                "citation": "nobody",
                "year": 2026,
                "join": join,
            }
            return type("OwnDepth", (Placement,), words)

        register(placement(0.5))
        run(small("own-depth"), tmp_path)
        assert run(small("own-depth"), tmp_path)[1] == []
        register(placement(0.25))
        assert len(run(small("own-depth"), tmp_path)[1]) == 1

    def test_a_curve_that_leaves_float32(self, tmp_path, monkeypatch):
        monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

        def join(self, x, sublayer, norm):
            return 1e4 * x + sublayer(norm(x))

        words = {
            "name": "own-loud",
            "title": "Loud",
            "citation": "nobody",
            "year": 2026,
            "join": join,
        }
        register(type("Loud", (Placement,), words))
        found, _ = run(small("own-loud", "post-ln"), tmp_path)
        assert found["placements"][0]["behaviour"] == _Behaviour.OVERFLOWS
        assert found["placements"][0]["mean_rms"][-1] is None
        assert "leaves float32: Loud " in (tmp_path / "hidden_rms.svg").read_text(encoding="utf-8")

    @pytest.mark.thorough
    def test_every_placement_of_encoders(self, tmp_path):
        names = encoder_placements()
        assert "t-fixup" not in names
        found, _ = run(small(*names, blocks=8, seeds=1), tmp_path)
        assert all(None not in curve["mean_rms"] for curve in found["placements"])
        held = {
            curve["name"] for curve in found["placements"] if curve["behaviour"] == _Behaviour.HELD
        }
        assert held >= {"post-ln", "deepnorm", "admin", "b2t", "keel", "residual", "ngpt"}
        assert not held & {"pre-ln", "peri-ln", "attn-res", "sub-ln"}

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"blocks": 0}, "blocks must be at least 1"),
            ({"width": 15}, "width=15 must be a multiple of heads=2"),
            ({"initialisation": "best"}, "unknown initialisation 'best'"),
            ({"initialisation": "theory"}, "heads = 1"),
        ],
    )
    def test_settings_that_no_stack_has(self, change, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            small("pre-ln", **change)

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (("post-lm",), "unknown placement 'post-lm'"),
            (("t-fixup",), "not defined for encoder-only"),
            (("pre-ln", "pre-ln"), "different names"),
        ],
    )
    def test_placements_that_it_cannot_take(self, names, message):
        with pytest.raises(ValueError, match=message):
            small(*names)
        with pytest.raises(UserError, match=message):
            configured(_DepthConfig(), [f"placements={json.dumps(names)}"])


class TestPicture:
    DEPTHS = (0, 1, 10)

    def curve(self, title: str, *values: float | None, what: str = "grows") -> dict:
        return {"title": title, "behaviour": what, "mean_rms": list(values)}

    def test_curves_that_coincide_after_a_block_share_a_line(self):
        curves = [self.curve("A", 1, 2, 4), self.curve("B", 9, 2.02, 4), self.curve("C", 1, 2, 4.2)]
        curves += [self.curve("D", 1, 2, None), self.curve("E", 1, 2, None)]
        assert [[one["title"] for one in bundle] for bundle in bundled(curves)] == [
            ["A", "B"],
            ["C"],
            ["D", "E"],
        ]

    def test_a_panel_for_each_behaviour_that_there_is(self):
        curves = [
            self.curve("$x$ & <y>", 1, 2, 4),
            self.curve("B", 1, 2, 4),
            self.curve("C", 1, 1, 1, what="falls"),
        ]
        drawn = picture(self.DEPTHS, curves)
        assert [[one.label for one in panel.series] for panel in drawn.panels] == [
            ["$x$ & <y> and 1 other"],
            ["C"],
        ]
        assert drawn.panels[0].series[0].x == [1, 10]
        assert "$x$ &amp; &lt;y&gt;" in drawn.svg


class TestVerb:
    def call(self, monkeypatch, *arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["normscope", "study", "depth", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(left.value.code or 0)

    def test_runs(self, tmp_path, monkeypatch, capsys):
        out = tmp_path / "out"
        settings = (
            "blocks=6",
            "width=16",
            "ffn_width=64",
            "seeds=1",
            'placements=["pre-ln", "post-ln"]',
        )
        assert (
            self.call(
                monkeypatch, *(word for one in settings for word in ("--set", one)), "--out", out
            )
            == 0
        )
        printed = capsys.readouterr().out
        first_words = [line.split()[0] for line in printed.splitlines()]
        assert [one for one in first_words if one in ("placement", "pre-ln", "post-ln")] == [
            "placement",
            "pre-ln",
            "post-ln",
        ]
        assert {"figure:", "page:"} <= set(printed.split())
        assert (out / "report.html").is_file()
        results = json.loads((out / "results.json").read_text(encoding="utf-8"))
        assert results["settings"]["ffn_width"] == 64
        assert results["commands"][0].startswith("normscope study depth --set blocks=6")

    def test_a_mistake_is_one_line(self, tmp_path, monkeypatch, capsys):
        assert self.call(monkeypatch, "--set", 'placements=["post-lm"]', "--out", tmp_path) == 2
        assert capsys.readouterr().err.startswith(
            "error: unknown placement 'post-lm'; did you mean "
        )

    def test_an_interruption_says_how_to_go_on(self, tmp_path, monkeypatch, capsys):
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(simulation, "profile", interrupt)
        assert self.call(monkeypatch, "--set", 'placements=["pre-ln"]', "--out", tmp_path) == 130
        assert "run the same command to resume" in capsys.readouterr().err
