"""Placements and choices from Python are those of the command line."""

import json
import sys

import pytest

import normscope
from normscope.cli.main import main


def printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *arguments: str
) -> object:
    monkeypatch.setattr(sys, "argv", ["normscope", *arguments, "--json"])
    capfd.readouterr()
    with pytest.raises(SystemExit):
        main()
    return json.loads(capfd.readouterr().out)


def plain(value: object) -> object:
    return json.loads(json.dumps(value))


@pytest.mark.thorough
def test_placements_are_those_of_the_command_line(monkeypatch, capfd) -> None:
    size = ("--model", "decoder-only", "--blocks", "4", "--width", "64", "--ffn-width", "96")
    found = normscope.placements(model="decoder-only", blocks=4, width=64, ffn_width=96)
    rows = printed(monkeypatch, capfd, "placements", *size)
    defined = [row for row in rows["placements"] if row["stacks"]]
    assert plain(found.to_dict()) == {**rows, "placements": defined}
    assert len(found) == len(defined)
    some = normscope.placements(
        "Deep Norm", "rezero", model="decoder-only", blocks=4, width=64, ffn_width=96
    )
    assert plain(some.to_dict()) == printed(
        monkeypatch, capfd, "placements", "show", "deepnorm", "rezero", *size
    )
    assert repr(some).startswith("Placements(deepnorm, rezero; decoder-only, 4 blocks")


def test_a_choice_is_that_of_the_command_line(monkeypatch, capfd) -> None:
    found = normscope.choose("pre-ln", "rezero", blocks=8, width=64, optimizer="muon", tokens=1e6)
    size = ("--blocks", "8", "--width", "64", "--optimizer", "muon", "--tokens", "1e6")
    assert plain(found.to_dict()) == printed(
        monkeypatch, capfd, "choose", "pre-ln", "rezero", *size
    )
    assert found.groups("no-warmup") == {"supported": ["pre-ln"], "not known": ["rezero"]}
    with pytest.raises(KeyError, match="lower-loss"):
        found.groups("warmup")


def test_norms_on_queries_and_keys_are_asked_about_as_on_the_command_line(
    monkeypatch, capfd
) -> None:
    found = normscope.choose("qk-norm", blocks=8, width=64, tokens=1e6)
    size = ("--blocks", "8", "--width", "64", "--tokens", "1e6")
    assert plain(found.to_dict()) == printed(monkeypatch, capfd, "choose", "QK-norm", *size)
    assert repr(found) == f"QueryKeyChoice({found.found.case})"
    html = found._repr_html_()
    assert "Norms on queries and keys for: decoder-only" in html
    assert found.found.command in html
    said = "qk-norm is a question of its own, and here it stands beside pre-ln: ask it alone"
    with pytest.raises(ValueError, match=said):
        normscope.choose("qk-norm", "pre-ln", blocks=8, width=64)


@pytest.mark.parametrize(
    ("arguments", "settings", "says"),
    [
        (["deepnrm"], {}, "did you mean 'deepnorm'"),
        (["t-fixup"], {"model": "decoder-only"}, "not defined"),
        ([], {"blocks": "6+3", "model": "decoder-only"}, "one number for decoder-only"),
        ([], {"width": 0}, "width must be at least 1"),
    ],
)
def test_what_is_none_is_refused(arguments, settings, says) -> None:
    with pytest.raises(ValueError, match=says):
        normscope.placements(*arguments, **settings)


def test_one_that_was_not_asked_for_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="there are pre-ln"):
        normscope.placements("pre-ln")["post-ln"]
