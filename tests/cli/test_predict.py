"""`normscope predict` as a user meets it: the table, the data, the figure, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from forked import start
from normscope.cli.main import main
from normscope.placement import registered
from normscope.theory import predict as many
from normscope.theory.predict import ModelSetting, StackPrediction, Update, predict
from tiny import finish


@pytest.fixture
def normscope(monkeypatch, capsys):
    """Run a command; its exit code, output and messages."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


def test_data_of_one_stack(normscope):
    code, out, _ = normscope(
        "predict", "pre-ln,post-ln", "--blocks", "3", "--width", "64", "--json"
    )
    assert code == 0
    data = json.loads(out)
    assert list(data) == ["pre-ln", "post-ln"]
    for name, curves in data.items():
        expected = predict(name, ModelSetting(blocks=3, width=64, ffn_width=64))["encoder"]
        assert curves["q"] == list(expected.q)
        assert curves["p"] == list(expected.p)
        assert curves["gradient_norm"] == {
            weight: list(norms) for weight, norms in expected.gradient_norm.items()
        }
        assert len(curves["q"]) == len(curves["p"]) == 4
        assert {len(norms) for norms in curves["gradient_norm"].values()} == {3}
        assert {"value", "ffn_in", "ffn_out"} <= curves["gradient_norm"].keys()


def test_attention_and_the_output_projection_of_a_model_of_ones_own(normscope):
    code, out, _ = normscope(
        "predict",
        "pre-ln",
        *("--blocks", "2", "--width", "64", "--heads", "4", "--key-value-heads", "2"),
        *("--query-key-norm", "per-head", "--position-encoding", "rotary", "--untied"),
        *("--stack", "decoder", "--setting", "normal-0.02", "--json"),
    )
    assert code == 0
    model = ModelSetting(
        stack="decoder",
        blocks=2,
        width=64,
        ffn_width=64,
        heads=4,
        key_value_heads=2,
        query_key_norm="per-head",
        position_encoding="rotary",
        tied=False,
        setting="normal-0.02",
    )
    found = json.loads(out)["pre-ln"]["gradient_norm"]
    expected = predict("pre-ln", model)["decoder"].gradient_norm
    assert found == {weight: list(norms) for weight, norms in expected.items()}
    plain = ModelSetting(
        stack="decoder", blocks=2, width=64, ffn_width=64, heads=4, setting="normal-0.02"
    )
    assert found["value"] != list(predict("pre-ln", plain)["decoder"].gradient_norm["value"])


def test_every_stream_of_a_placement_has_a_row_and_a_key(normscope, tmp_path: Path):
    plot = tmp_path / "curves.svg"
    _, out, _ = normscope("predict", "residual,post-ln", "--blocks", "2", "--plot", str(plot))
    rows = [line.split() for line in out.partition("\n\n")[2].splitlines()]
    assert [row[:2] for row in rows if row[:1] == ["residual:"]] == [
        ["residual:", "x"],
        ["residual:", "r"],
    ]
    assert "x 1.000 to 1.000; ResiDual: r 1.000 to 2.271" in plot.read_text()
    _, out, _ = normscope("predict", "residual,post-ln", "--blocks", "2", "--json")
    data = json.loads(out)
    assert list(data["residual"]["streams"]) == ["x", "r"]
    assert data["residual"]["streams"]["x"] == {
        "q": data["residual"]["q"],
        "p": data["residual"]["p"],
    }
    assert data["residual"]["streams"]["r"]["q"][-1] > 2
    assert list(data["post-ln"]["streams"]) == ["x"]


def test_it_says_where_it_is_not_to_be_trusted(normscope):
    """Below the tables, in blocks of each placement, and as data."""
    deep = ("--blocks", "24", "--width", "128", "--setting", "xavier-normal")
    _, out, _ = normscope("predict", "post-ln", "pre-ln", *deep)
    assert (
        "less sure: gradients of query, key, −30 to +40 % off in models that were drawn, since "
        "tokens have more than 0.95 of their square in common: post-ln in blocks 7 to 24"
    ) in " ".join(out.split())
    _, out, _ = normscope("predict", "post-ln", *deep, "--json")
    (doubt,) = json.loads(out)["post-ln"]["doubts"]
    assert (doubt["of"], doubt["first"], doubt["last"]) == (["query", "key"], 7, 24)
    assert doubt["error"] == [-0.3, 0.4]
    _, out, _ = normscope("predict", "pre-ln", "post-ln", "--blocks", "2", "--width", "32")
    assert out.splitlines()[-2].startswith(
        "undecided: the stream and gradients of all matrices, since no models"
    )
    _, out, _ = normscope("predict", "pre-ln", "--blocks", "2", "--width", "32", "--json")
    assert json.loads(out)["pre-ln"]["doubts"][0]["error"] is None


def test_data_of_two_stacks(normscope):
    _, out, _ = normscope(
        "predict", "--stack", "encoder-decoder", "--blocks", "2", "--setting", "paper", "--json"
    )
    stacks = json.loads(out)["pre-ln"]
    assert list(stacks) == ["encoder", "decoder"]
    assert "cross_value" in stacks["decoder"]["gradient_norm"]
    assert "cross_value" not in stacks["encoder"]["gradient_norm"]


def test_the_table_shows_first_middle_and_last(normscope):
    code, out, _ = normscope("predict", "post-ln", "deepnorm", "--blocks", "8")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["placement", "0", "1", "2", "4", "8"] in rows
    assert ["post-ln", "1", "1", "1", "1", "1"] in rows
    assert sum(row[:1] == ["deepnorm"] for row in rows) == 2


def test_what_curves_come_to_is_said_before_them(normscope):
    """With the numbers of the tables below; a gate of 0 leaves F no gradient."""
    _, out, _ = normscope("predict", "pre-ln,post-ln,rezero", "--blocks", "12")
    assert out.splitlines()[:4] == [
        "pre-ln: over depth E‖x‖² grows 13-fold and the gradient of W2 falls 3.2-fold",
        "post-ln: over depth E‖x‖² stays and the gradient of W2 stays",
        "rezero: over depth E‖x‖² stays and the gradient of W2 is 0 at first",
        "",
    ]
    tables = [line.split() for line in out.partition("\n\n")[2].splitlines()]
    squares, norms = [list(map(float, row[1:])) for row in tables if row[:1] == ["pre-ln"]]
    assert squares[-1] / squares[0] == pytest.approx(13, abs=0.5)
    assert norms[0] / norms[-1] == pytest.approx(3.2, abs=0.05)
    _, out, _ = normscope("predict", "all", "--blocks", "2", "--width", "32")
    assert out.startswith("over depth E‖x‖² stays in ")


def test_all_are_those_that_are_defined(normscope):
    _, out, err = normscope("predict", "all", "--blocks", "1", "--json")
    refused = ["mhc-deepseek-v4"]
    assert [*json.loads(out), *refused] == sorted(
        [n for n, p in registered().items() if "encoder-only" in p.models],
        key=lambda name: name in refused,
    )
    assert err == "left out, since theory does not follow them here: mhc-deepseek-v4\n"


def test_the_figure_is_written_whole_or_not_at_all(normscope, tmp_path: Path):
    code, out, _ = normscope("predict", "--plot", str(tmp_path / "curves.svg"))
    assert code == 0
    assert f"figure: {tmp_path / 'curves.svg'}" in out
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")
    code, _, err = normscope("predict", "--plot", str(tmp_path / "missing" / "curves.svg"))
    assert code == 2
    assert "its folder does not exist" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.svg"]


def test_what_is_not_finite_is_null(normscope, monkeypatch):
    def infinite(name: str, model: ModelSetting, update: None = None) -> dict[str, StackPrediction]:
        q = np.array([np.inf])
        return {
            stack: StackPrediction(q=q, p=np.zeros(1), gradient_norm={}, shares={})
            for stack in predict(name, model)
        }

    monkeypatch.setattr(many, "predict", infinite)
    _, out, _ = normscope("predict", "--json")
    assert json.loads(out)["pre-ln"]["q"] == [None]


def test_many_deep_stacks_are_shared_among_cores():
    """Enough blocks in all for processes to be worth it; each placement's curves are what they are
    alone.
    """
    code, out, err = finish(start("predict", "admin,post-ln,sub-ln", "--blocks", "1400", "--json"))
    assert (code, err.splitlines()[1:]) == (0, [])
    data, model = json.loads(out), ModelSetting(blocks=1400)
    assert len(data) * 1400 > 4000
    for name in ("admin", "post-ln", "sub-ln"):
        expected = predict(name, model)["encoder"]
        assert data[name]["q"] == list(expected.q)
        assert data[name]["gradient_norm"]["value"] == list(expected.gradient_norm["value"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prelm"], "unknown placement 'prelm'"),
        ([""], "give the name of a placement, such as pre-ln"),
        (["t-fixup"], "'t-fixup' is not defined for encoder-only models, only for encoder-decoder"),
        (["--blocks", "0"], "blocks must be at least 1, got 0"),
        (["--width", "33"], "width must be even"),
        (["--heads", "3"], "width=512 must be a multiple of heads=3"),
        (["--vocabulary", "1"], "vocabulary must be at least 2, got 1"),
        (
            ["--setting", "xavier"],
            "setting must be one of paper, fairseq-0.10, theory, xavier-normal",
        ),
        (["--stack", "both"], "stack must be one of encoder, decoder, encoder-decoder, got 'both'"),
        (["--activation", "tanh"], "activation must be one of relu, gelu, swiglu, got 'tanh'"),
        (
            ["--norm", "batch-norm"],
            "norm must be one of layer-norm, rms-norm, dyt, derf, got 'batch-norm'",
        ),
        (["--import", "nowhere.py"], "cannot import"),
    ],
)
def test_what_it_refuses_in_one_line(normscope, arguments, message):
    code, out, err = normscope("predict", *arguments)
    assert code == 2
    assert message in " ".join(err.split())
    assert out == ""
    assert "Traceback" not in err


def test_no_torch_is_needed():
    """Loading it would take longer than every prediction."""
    program = (
        "import sys; from normscope.cli.main import command_line; "
        "words = ['predict', 'pre-ln', '--blocks', '4', '--width', '64', '--json']; "
        "command_line('predict')(words, standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pre-ln"]["q"][0] == 1.0


def test_the_change_by_an_update(normscope, tmp_path: Path):
    small = ("--blocks", "4", "--width", "64", "--tokens", "6")
    plot = tmp_path / "curves.svg"
    asked = ("predict", "pre-ln,post-ln", *small, "--update", "sgd", "--rate", "0.01")
    code, out, _ = normscope(*asked, "--plot", str(plot))
    assert code == 0
    model = ModelSetting(blocks=4, width=64, ffn_width=64, tokens=6)
    expected = predict("post-ln", model, update=Update(optimizer="sgd", rate=0.01))[
        "encoder"
    ].change
    rows = [line.split() for line in out.splitlines()]
    for shown in (expected.stream[[1, 2, 4]], [expected.output, expected.loss]):
        assert ["post-ln", *(f"{value:.4g}" for value in shown)] in rows
    assert "out of first order" not in out
    assert "E‖δx_l‖² / d by the first update (sgd, rate 0.01)" in out
    assert "one update" in plot.read_text()
    _, out, _ = normscope(*asked, "--json")
    data = json.loads(out)["post-ln"]["change"]
    assert (data["update"], data["rate"], data["loss"]) == ("sgd", 0.01, expected.loss)
    assert data["stream"] == list(expected.stream)
    assert data["amplified"] == {kind: list(curve) for kind, curve in expected.amplified.items()}
    _, out, _ = normscope("predict", "pre-ln", *small, "--json")
    assert "change" not in json.loads(out)["pre-ln"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("--update", "adagrad"),
            "update must be one of sgd, radam, adam, adamw, lion, muon, random",
        ),
        (("--rate", "0.1"), "name its optimiser"),
        (("--update", "adam", "--rate", "-1"), "rate must be positive"),
        (("--update", "adam", "--stack", "encoder-decoder"), "through one stack"),
        (
            ("--update", "adam", "--stack", "decoder", "--tokens", "90"),
            "is not known of neighbours taken together",
        ),
    ],
)
def test_updates_that_are_not_followed(normscope, given, message):
    code, out, err = normscope("predict", "pre-ln", "--blocks", "1", *given)
    assert (code, out) == (2, "")
    assert message in err


def test_a_change_out_of_first_orders_range_says_so_and_names_a_rate_within(normscope):
    asked = ("predict", "post-ln", "--blocks", "6", "--width", "64", "--update", "adam")
    _, out, _ = normscope(*asked, "--rate", "1e-2")
    words = " ".join(out.split())
    assert (
        "post-ln: out of first order's range, so changes below are no forecasts"
        in words.partition("theory setting")[0]
    )
    within = words.split("to a rate of about ")[1].split()[0]
    _, out, _ = normscope(*asked, "--rate", str(0.9 * float(within)))
    assert "out of first order" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--plot", "x.png"),
            "--plot x.png: a picture is written as SVG; name a file such as x.svg",
        ),
        (
            ("--blocks", "5000000"),
            "blocks must be at most 100,000, which takes about a minute, got 5,000,000",
        ),
    ],
)
def test_what_would_be_no_picture_or_take_hours_is_refused(
    normscope, monkeypatch, tmp_path, arguments, said
):
    monkeypatch.chdir(tmp_path)
    code, _, err = normscope("predict", "pre-ln", *arguments)
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert said in err
