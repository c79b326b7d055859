"""How a file of ours is known again: by how it begins, of the same kind, and by nothing that stands
further on in it.
"""

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import normscope
from normscope.catalogue.details import details
from normscope.catalogue.rows import sized
from normscope.catalogue.wiring_svg import diagram
from normscope.cli.doctor_output import as_text
from normscope.doctor.report.card import badge
from normscope.doctor.report.page import render_doctor
from normscope.errors import UserError
from normscope.limits import kinds
from normscope.limits.kinds import FileKind, is_sealed, sealed_json, sealed_lines
from normscope.limits.ours import refuse_other
from normscope.placement import named
from normscope.processes.surroundings import LOCK, hold
from normscope.runs.trained import SCORES
from normscope.settings.tables import to_toml
from report.diagnoses import unknown
from tiny import tiny

RESULTS = Path(__file__).parents[2] / "results"
KINDS = {
    name: kind
    for name, kind in vars(kinds).items()
    if isinstance(kind, FileKind) and name.isupper()
}


def _wiring() -> str:
    size = sized("encoder-only", "2", 16, 32, 2)
    found = details(named("post-ln"), size)
    return diagram(found, next(iter(found.wiring)))


def _lock(folder: Path) -> str:
    with hold(folder):
        return (folder / LOCK).read_text()


@cache
def written(name: str, folder: Path) -> bytes:
    """What the writer of a kind writes."""
    text = {
        "PAGE": lambda: render_doctor(unknown()),
        "CHART": lambda: normscope.predict("pre-ln", blocks=2).svg(),
        "BADGE": lambda: badge(unknown()),
        "WIRING": _wiring,
        "DIAGNOSIS": lambda: as_text(unknown().to_json()),
        "RESULTS": lambda: (RESULTS / "demo/results.json").read_text(encoding="utf-8"),
        "CLAIMS": lambda: (RESULTS / "paper/claims.md").read_text(encoding="utf-8"),
        "LOCK": lambda: _lock(folder),
        "SCORES": lambda: SCORES.text({"run": "runs/mine", "update": 3, "split": "valid"}),
        "CHECKPOINT": lambda: f"{'0f' * 32}  model.safetensors\n",
        "CONFIGURATION": lambda: sealed_lines(to_toml(tiny())),
    }
    return text[name]().encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("folder")


MARKED = sorted(KINDS.keys() - {"TEXT"})


@pytest.mark.parametrize("name", MARKED)
def test_what_a_writer_writes_is_of_its_own_kind_and_of_no_other(name: str, folder: Path) -> None:
    content = written(name, folder)
    assert [other for other in KINDS if KINDS[other].bears(content)] == [name]
    file = folder / "file"
    file.write_bytes(content)
    for other, kind in KINDS.items():
        if other == name:
            refuse_other(file, kind)
        else:
            with pytest.raises(UserError, match="move it away, or choose another place"):
                refuse_other(file, kind)


@pytest.mark.parametrize("name", MARKED)
@given(before=st.binary(min_size=1, max_size=40), zeros=st.integers(1, 40))
def test_what_stands_further_on_says_nothing(
    name: str, before: bytes, zeros: int, folder: Path
) -> None:
    content = written(name, folder)
    for foreign in (before + content, b"\0" * zeros + content, b"\xef\xbb\xbf" + content):
        assert not any(kind.bears(foreign) for kind in KINDS.values())
    for first in (content.partition(b"\n")[0][:12], before):
        assert not any(kind.bears(first) for other, kind in KINDS.items() if other != "LOCK")


FOREIGN = {
    "package.json": '{\n "name": "mine",\n "normscope": "1.0"\n}\n',
    "package.json, our name first": '{\n "normscope": "^1.0",\n "name": "mine"\n}\n',
    "package.json on one line": '{"normscope": "1.0", "schema": 2, "name": "mine"}',
    "results of another": '{\n "title": "mine",\n "normscope": "0.1.0",\n "loss": 3.2\n}\n',
    "a seal of another": '{\n "loss": 3.2,\n "sha256_of_this_file": "0"\n}\n',
    "another format": '{\n "format": "mine",\n "version": 1\n}\n',
    "a page with the mark further on": (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<title>mine</title>\n'
        '<meta name="generator" content="NormScope">\n</head>'
    ),
    "a picture with a title": '<svg role="img" aria-labelledby="title desc" width="3"></svg>',
    "a badge of another": '<svg xmlns="http://www.w3.org/2000/svg" class="badges"></svg>',
    "a page of claims": "# Mine\n\nMade by `normscope study paper` and by me\n",
    "a readme": "# Mine\n\n<!-- Written by `normscope doctor --card`; -->\n",
    "lines with a seal": "mine = 1\n# SHA-256 of the lines above: 0000\n",
    "zeros": "\0" * 4096,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_the_users_that_speaks_of_us_is_theirs(name: str, tmp_path: Path) -> None:
    content = FOREIGN[name].encode()
    assert [other for other, kind in KINDS.items() if kind.bears(content)] == []
    assert not sealed_json("normscope-mine").bears(content)
    (tmp_path / "file").write_bytes(content)
    for kind in KINDS.values():
        with pytest.raises(UserError, match="and stays: move it away, or choose another place"):
            refuse_other(tmp_path / "file", kind)
        refuse_other(tmp_path / "file", kind, content)  # which changes nothing
    assert (tmp_path / "file").read_bytes() == content


def test_of_a_lock_a_power_cut_may_leave_zeros_of_its_length(folder: Path) -> None:
    """Its length is that of a number, a name of at most 255 bytes and a time."""
    for length in (1, len(written("LOCK", folder)), 512):
        assert kinds.LOCK.bears(b"\0" * length)
    assert not kinds.LOCK.bears(b"\0" * 513)
    assert not kinds.LOCK.bears(b"\0" * 100 + b"mine")


def test_a_configuration_that_was_edited_is_the_users() -> None:
    text = sealed_lines("width = 16\n# mine: ünder\n")
    assert is_sealed(text.encode())
    for edited in (
        text.replace("16", "32"),
        text + "\n",
        text[:-1],
        "",
        text.replace("\n", "\r\n"),
        "\n" + text,
    ):
        assert not is_sealed(edited.encode())
    assert not is_sealed(text.encode("latin-1"))


def test_committed_pictures_and_results_are_of_their_kinds() -> None:
    """They were written by earlier commits, and a user's folder may hold such."""
    pictures = sorted(RESULTS.rglob("*.svg"))
    assert len(pictures) > 50
    assert [one for one in pictures if not kinds.CHART.bears(one.read_bytes())] == []
    files = [one for one in RESULTS.rglob("results.json") if b'"created"' in one.read_bytes()[:300]]
    assert len(files) > 20
    assert [one for one in files if not kinds.RESULTS.bears(one.read_bytes())] == []


@pytest.mark.parametrize("title", ['a "b" \\ c', "Wärme: ‖x‖", "line\nbreak", ""])
def test_a_title_may_hold_any_character(title: str) -> None:
    table = {
        "title": title,
        "created": "2026-11-23T14:56:34Z",
        "normscope": "0.1.0",
        "source_sha256": "0f" * 32,
        "commit": "",
    }
    for ascii_alone in (True, False):
        text = json.dumps(table, indent=1, ensure_ascii=ascii_alone)
        assert kinds.RESULTS.bears(text.encode())
