"""The card and the badge of a diagnosis, as a page that shows them reads them."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from normscope.cli.main import command_line
from normscope.doctor.report.card import badge, card
from normscope.errors import UserError
from normscope.limits.inset import CARD
from normscope.limits.kinds import BADGE
from normscope.limits.ours import refuse_other
from report.diagnoses import EXAMPLES, unknown


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_card_says_placement_norm_depth_and_every_finding(name: str) -> None:
    found = EXAMPLES[name]()
    text = card(found, "badge.svg").replace("\\", "")
    for stack in found.stacks:
        assert f"{stack.placement or 'no registered placement'} · {stack.blocks} block" in text
        assert f"width {stack.width:,}" in text
    assert len(re.findall(r"^- \*\*", text, re.M)) == len(found.findings)
    assert len(set(re.findall(r"^\| .* \|$", text, re.M))) == len(found.stacks) + 5


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_badge_is_a_picture_with_a_text_for_who_does_not_see_it(
    name: str, tmp_path: Path
) -> None:
    found = EXAMPLES[name]()
    picture = ET.fromstring(badge(found))
    left, right = (one.text or "" for one in picture.iter("{http://www.w3.org/2000/svg}text"))
    assert picture.attrib["aria-label"] == f"{left}: {right}"
    widths = [
        float(one.attrib["width"]) for one in picture.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert sum(widths) == float(picture.attrib["width"]) < 700
    assert ("error" in right) == (found.verdict == "errors")
    file = tmp_path / "badge.svg"
    file.write_text(badge(found))
    refuse_other(file, BADGE)  # ours is written over


def test_a_model_s_own_names_are_no_markup_on_the_page() -> None:
    text = card(unknown(), "badge.svg")
    assert "<script>" not in text.replace("<!--", "")
    assert "<b>" not in text


MODEL = """from torch import nn, randn


def build():
    layers = [nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2)]
    return nn.Sequential(*layers), (randn(2, 5, 16),)
"""
WORDS = ["doctor", "m.py:build", "--no-advice", "--fail-on", "error", "--card"]


def _written(file: str) -> int | str | None:
    with pytest.raises(SystemExit) as end:
        command_line("doctor")([*WORDS, file])
    return end.value.code


def test_the_command_writes_both_and_nothing_over_a_file_of_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(MODEL)
    words = [*WORDS, "card.md"]
    for _ in range(2):
        assert _written("card.md") == 0
    assert "](card.svg)" in Path("card.md").read_text()
    assert Path("card.md").read_text().splitlines()[0] == CARD.first
    assert Path("card.md").read_text().splitlines()[-1] == CARD.last
    assert "post-ln" in Path("card.svg").read_text()
    Path("card.svg").write_text("mine")
    with pytest.raises(UserError, match=r"card\.svg was not written by NormScope"):
        command_line("doctor")(words)
    with pytest.raises(UserError, match=r"gets the ending \.svg"):
        command_line("doctor")([*words[:-1], "card.svg"])


def test_in_a_readme_the_card_alone_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(MODEL)
    head, tail = b"# Mine\r\n\n", b"\r\n\n## Licence \xff\n"
    there = head + f"{CARD.first}\nan old card\n{CARD.last}".encode() + tail
    Path("README.md").write_bytes(there)
    Path("README.md").chmod(0o640)
    assert _written("README.md") == 0
    made = Path("README.md").read_bytes()
    inner = made.removeprefix(head).removesuffix(tail)
    assert made == head + inner + tail
    assert b"post-ln" in inner
    assert b"an old card" not in inner
    assert inner.count(CARD.first.encode()) == inner.count(CARD.last.encode()) == 1
    assert Path("README.md").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("pasted", ["", CARD.first, f"{CARD.last}\n{CARD.first}"])
def test_a_readme_without_a_place_for_the_card_stays_before_anything_is_done(
    pasted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one into which a card of an earlier version was pasted, which had no last line."""
    monkeypatch.chdir(tmp_path)
    there = f"# Mine\n\n{pasted}\n| normalisation | |\n\n## Licence\n"
    Path("README.md").write_text(there)
    with pytest.raises(
        UserError, match=r"README\.md has no place for a card, and stays"
    ) as refused:
        command_line("doctor")([*WORDS, "README.md"])
    assert CARD.first in str(refused.value)
    assert CARD.last in str(refused.value)
    assert Path("README.md").read_text() == there
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]
