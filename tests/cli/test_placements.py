"""`normscope placements` and `normscope placements show`."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from normscope.cli.main import main
from normscope.placement import registered, registry
from tiny import MY_PLACEMENT


@pytest.fixture(autouse=True)
def _registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


@pytest.fixture
def call(capfd, monkeypatch):
    """`normscope placements ARGUMENTS` -> exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", "placements", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        return (int(stopped.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "half.py"
    file.write_text(MY_PLACEMENT, encoding="utf-8")
    return file


def test_the_list_fits_a_hundred_columns_and_names_everyone(call):
    code, out, err = call()
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    first_words = {line.removeprefix("└ ").split(" ")[0] for line in out.splitlines() if line}
    assert set(registered()) <= first_words


def test_the_short_list_waits_for_neither_torch_nor_matplotlib():
    program = (
        "import sys\n"
        "from normscope.cli.main import main\n"
        "sys.argv = ['normscope', 'placements']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_list_as_data(call):
    code, out, _ = call(
        "--json", "--model", "decoder-only", "--blocks", 4, "--width", 64, "--ffn-width", 96
    )
    found = json.loads(out)
    assert code == 0
    assert found["size"] == {
        **{"model": "decoder-only", "width": 64, "ffn_width": 96, "heads": 8},
        **{"encoder_blocks": 0, "decoder_blocks": 4},
    }
    by_name = {row["name"]: row for row in found["placements"]}
    assert set(by_name) == set(registered())
    assert by_name["pre-ln"]["stacks"]["decoder"]["norms"] == [2, 2, 2, 2]
    assert by_name["t-fixup"]["stacks"] == {}


def test_the_page_of_the_manual_names_every_key(call):
    page = (Path(__file__).parents[2] / "docs/placements.md").read_text(encoding="utf-8")
    described = page[page.index("## As data") :]
    found = [json.loads(call("--json")[1]), json.loads(call("show", "ngpt", "--json")[1])]
    rows, shown = found[0]["placements"], found[1]
    keys = {*found[0], *found[0]["size"], *rows[0], *rows[0]["stacks"]["encoder"], *shown}
    keys |= {
        *rows[0]["stacks"]["encoder"]["last_block_cost"],
        *shown["weights"][0],
        *shown["parameters"][0],
    }
    keys |= {
        *shown["wiring"],
        *shown["wiring"]["encoder"][0],
        *shown["wiring"]["encoder"][0]["boxes"][0],
    }
    assert [key for key in sorted(keys) if f"`{key}`" not in described] == []


@pytest.mark.parametrize("name", registered())
def test_every_placement_can_be_shown(call, name):
    code, out, err = call("show", name)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert "attention" in out
    assert registered()[name].citation.split(",")[0] in out


def test_the_picture(call, tmp_path):
    file = tmp_path / "picture.svg"
    code, _, _ = call("show", "sub-ln", "--stack", "decoder", "--svg", file)
    assert code == 0
    words = [text.text for text in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")]
    assert "cross-attention" in words
    assert [path.name for path in tmp_path.iterdir()] == ["picture.svg"]


def test_a_placement_of_ones_own(call, own):
    code, out, _ = call("show", "half-ln", "--import", own)
    assert code == 0
    assert "× 0.5" in out
    assert "half-ln" in call("--import", own)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["show", "potsln"],
            "unknown placement 'potsln'; did you mean 'post-ln'? `normscope placements` lists all",
        ),
        (
            ["show", "t-fixup", "--model", "decoder-only"],
            "'t-fixup' is not defined for decoder-only models",
        ),
        (
            ["show", "pre-ln", "--model", "decoder-only", "--stack", "encoder"],
            "--stack encoder: the model has decoder",
        ),
        (["show", "pre-ln", "--svg", "no/such/folder.svg"], "its folder does not exist"),
        (["--blocks", "0"], "--blocks must be a number such as 6"),
        (["--width", "500", "--heads", "3"], "--width must be a multiple of heads"),
        (["--model", "both"], "--model must be one of encoder-only"),
        (["--import", "nowhere.py"], "nowhere.py: no such file"),
        (["--width", "64", "show", "pre-ln"], "--width belongs after `show`, not before it"),
    ],
)
def test_mistakes_end_in_one_line(call, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
