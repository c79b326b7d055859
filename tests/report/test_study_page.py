"""The page of a study as text: verdicts first, every number of it, and nothing that gets out of its
place.
"""

import re
from dataclasses import replace

import pytest

from normscope.report.svg import HUES
from normscope_studies.engine.judging import Verdict
from normscope_studies.engine.page import (
    Claim,
    Findings,
    StudyFigure,
    StudyTable,
    cell,
    is_number,
    render_study,
    write_study,
)

SVG = (
    '<svg role="img" aria-labelledby="title desc"><title id="title">T</title><desc '
    f'id="desc">D</desc><path style="stroke: {HUES[0]}"/></svg>'
)


def claim(name: str, verdict: Verdict, conditions: str = "") -> Claim:
    return Claim(
        name=name,
        statement="E‖x‖² < 2 & more",
        source="paper, eq. (1)",
        found="1.234 <measured>",
        verdict=verdict,
        conditions=conditions,
    )


FOUND = Findings(
    conditions={"Logarithm": "natural", "Seeds": "3"},
    claims=[
        claim("First", Verdict.REPRODUCED),
        claim("Second", Verdict.CONTRADICTED),
        claim("Third", Verdict.UNDER_CONDITIONS, "from l = 5 on"),
        claim("Fourth", Verdict.UNDECIDED),
    ],
    figures=[
        StudyFigure(name="one_thing", title="One", caption="A <caption>.", svg=SVG),
        StudyFigure(name="other", title="Other", caption="B.", svg=SVG, wide=False),
    ],
    tables=[
        StudyTable(
            title="Table", columns=["l", "value", "of"], rows=[[1, 0.123456, "<b>"], [2, None, "b"]]
        )
    ],
    data={},
)
MADE = {
    "title": "A study & its title",
    "question": "Is x < y?",
    "created": "2025-01-31T12:00:00Z",
    "made_by": "NormScope 9.9, source abc",
    "caution": "",
    "commands": ["normscope study lemmas --out 'a b'"],
    "environment": {"torch": "2.13.0"},
}


def page(caution: str = "", **changes: object) -> str:
    return render_study(replace(FOUND, **changes), MADE | {"caution": caution})


def test_verdicts_stand_first_and_again_beside_what_was_found():
    html = page()
    head, body = html.split("</header>")
    for tone, verdict, name in (
        ("good", "reproduced", "First"),
        ("bad", "contradicted", "Second"),
        ("mixed", "reproduced under conditions", "Third"),
        ("plain", "undecided", "Fourth"),
    ):
        mark = (
            f'<span class="{tone}"><span class="dot" aria-hidden="true"></span><span '
            f'class="word">{verdict}</span>'
        )
        assert f"{mark}</span> – {name}" in head
        assert mark in body
    assert "Third: from l = 5 on" in head
    assert body.count("paper, eq. (1)") == 4
    assert (
        "4 claims: 1 reproduced, 1 reproduced under conditions, 1 undecided, 1 contradicted."
        in head
    )


def test_what_is_written_is_text_and_no_markup():
    html = page()
    assert "1.234 &lt;measured&gt;" in html
    assert "A &lt;caption&gt;." in html
    assert "<b>" not in html
    assert html.count("<script") == 2
    without_script = re.sub("<script.*?</script>", "", html, flags=re.DOTALL)
    assert "http" not in re.sub(r"http-equiv|xmlns\S*", "", without_script)


def test_cells():
    assert [cell(value) for value in (None, "text", 1234567, 0.123456, float("nan"))] == [
        "–", "text", "1,234,567", "0.1235", "non-finite",
    ]  # fmt: skip
    assert [is_number(value) for value in (None, 1, 1.5, "1")] == [True, True, True, False]
    html = page()
    assert '<tr><th scope="row">1</th><td class="n">0.1235</td><td>&lt;b&gt;</td></tr>' in html
    assert (
        '<th scope="col">l</th><th scope="col" class="n">value</th><th scope="col">of</th>' in html
    )


def test_pictures_have_ids_of_their_own_and_the_pages_colours():
    html = page()
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert {"one-thing-title", "other-desc"} <= set(ids)
    assert "stroke: var(--hue-0)" in html
    assert html.count('<figure id="f-one-thing" class="whole">') == 1


def test_the_same_contents_give_the_same_bytes_and_no_table_no_section(tmp_path):
    assert page() == page()
    assert "Numbers</h2>" in page()
    assert "Numbers</h2>" not in page(tables=[])


def test_files(tmp_path):
    file = write_study(FOUND, MADE, tmp_path)
    assert file.read_text(encoding="utf-8") == page()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "one_thing.svg",
        "other.svg",
        "report.html",
    ]
    assert (tmp_path / "other.svg").read_text(encoding="utf-8") == SVG


@pytest.mark.parametrize(
    "part", ["Logarithm", "natural", "normscope study lemmas", "2.13.0", "2025-01-31"]
)
def test_how_it_was_measured(part):
    assert part in page()


def test_a_caution_stands_before_the_verdicts_and_a_study_without_claims_has_neither():
    html = page(caution="They mean nothing.")
    assert html.index("They mean nothing.") < html.index('<ul class="verdicts">')
    assert 'class="caution"' not in page()
    bare = page(claims=[])
    assert "verdicts" not in bare.partition("</style>")[2]
    assert "Claims</h2>" not in bare
