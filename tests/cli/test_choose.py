"""`normscope choose`, and the same below `placements`."""

import json
import sys
from pathlib import Path

import pytest

from normscope.cli.main import main
from normscope.placement import registry
from tiny import MY_PLACEMENT


@pytest.fixture(autouse=True)
def _registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


@pytest.fixture
def call(capfd, monkeypatch):
    """`normscope ARGUMENTS` -> exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        return (int(stopped.value.code or 0), *capfd.readouterr())

    return run


CASE = (
    "--model",
    "decoder-only",
    "--blocks",
    24,
    "--width",
    1024,
    "--optimizer",
    "muon",
    "--tokens",
    "5e9",
)


@pytest.mark.thorough
def test_a_case_fits_a_hundred_columns_and_cuts_no_name_and_no_number(call):
    code, out, err = call("choose", *CASE, "--long")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert "…" not in out
    assert "only small-scale" in out
    assert "peri-ln    −0.051 ± 0.023" in out
    assert call("placements", "choose", *CASE, "--long")[1] == out


def test_what_to_do_is_a_screen_and_names_placements(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = call("choose", *CASE)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 48
    starts = [
        next(line for line in lines if line.startswith(f"  {word}: "))
        for word in ("Placement", "Peak rate", "Warm-up")
    ]
    # The answer comes before its reasons; without a batch its rate has two lines.
    assert [lines.index(line) for line in starts] == [4, 5, 7]
    assert "lower than Pre-LN? Supported: peri-ln, deepnorm and post-ln" in " ".join(out.split())
    assert "normscope choose --long" in out


def test_as_data_every_finding_says_where_it_stands(call):
    code, out, _ = call("choose", "Peri-LN,deepnorm", *CASE, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["case"]["tokens"] == 5e9
    assert found["measured"][0]["scale"] == "small-scale"
    claims = {one["question"]["name"]: one["claims"] for one in found["answers"]}
    assert [claim["placement"] for claim in claims["no-warmup"]] == ["peri-ln", "deepnorm"]
    assert all(one["source"] for claim in claims["no-warmup"] for one in claim["findings"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--optimizer", "muno"), "did you mean 'muon'?"),
        (("t-fixup",), "t-fixup is not defined for decoder-only models; it is for encoder-decoder"),
        (("--model", "decoder"), "did you mean 'decoder-only'?"),
        (("--tokens", "0"), "tokens must be a number of tokens, such as 5e9, got 0"),
        (("--width", "0"), "width must be at least 1"),
        (("--import", "missing.py"), "missing.py"),
    ],
)
def test_a_mistake_is_told_in_a_line(call, arguments, says):
    code, out, err = call("choose", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_a_placement_of_the_users_own_is_not_known(call, tmp_path: Path):
    file = tmp_path / "half.py"
    file.write_text(MY_PLACEMENT, encoding="utf-8")
    code, out, _ = call(
        "choose", "half-ln", "--import", file, "--blocks", 4, "--width", 64, "--long"
    )
    assert code == 0
    assert "Not measured by us like this: 1 placement: half-ln." in out


@pytest.mark.parametrize(
    ("written", "tokens"), [("5B", 5e9), ("1.5e9", 1.5e9), ("300m", 3e8), ("2T", 2e12)]
)
def test_tokens_are_taken_as_people_write_them(call, written, tokens):
    code, out, _ = call("choose", "peri-ln", "--tokens", written, "--json")
    assert (code, json.loads(out)["case"]["tokens"]) == (0, tokens)


def test_what_is_no_number_of_tokens_is_refused(call):
    code, _, err = call("choose", "peri-ln", "--tokens", "5X")
    assert (code, err) == (2, "error: '5X' is no number; write it such as 5B, 300M or 1.5e9\n")
