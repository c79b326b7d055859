"""The page of a diagnosis: every number of it, in an order that serves the reader, and nothing but
one file.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from drawing import drawn_once
from normscope.doctor.lint.rule import Rule
from normscope.doctor.report import page, rates
from normscope.doctor.report.advice_words import ADVICE_TERMS
from normscope.doctor.report.page import _COLUMN_TERMS, render_doctor
from normscope.doctor.result import AskedRule
from normscope.report import explorer
from report.diagnoses import (
    BETAS,
    EXAMPLES,
    FINAL_NORM,
    advice,
    broken,
    diagnosis,
    healthy,
    made,
    unknown,
    with_stack,
    with_sublayer,
)

CSS = Path(explorer.__file__).parent / "templates" / "doctor.css"
pytestmark = pytest.mark.sampled(one_in=2)
DRAWN = {(page, "panels_svg"): page.panels_svg} | {
    (rates, n): getattr(rates, n) for n in ("rates_picture",)
}


@pytest.fixture(scope="module", autouse=True)
def _drawn_once() -> Iterator[None]:
    """Most pages below differ from one of EXAMPLES in words."""
    with pytest.MonkeyPatch.context() as patch:
        for (place, name), picture in DRAWN.items():
            patch.setattr(place, name, drawn_once(picture))
        yield


def without_script(html: str) -> str:
    return re.sub("<script.*?</script>", "", html, flags=re.DOTALL)


@cache
def page_of(name: str) -> str:
    """Drawing is what takes time."""
    return render_doctor(EXAMPLES[name]())


VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Tags, ids and text outside pictures; fails on a tag that closes out of order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.text, self.told = "", ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)
        self.text += " " if tag in ("td", "th", "p", "span", "li") else ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "svg" in self.open:
            self.told += data if self.open[-1] in ("title", "desc") else ""
        elif "style" not in self.open:
            self.text += data


def numbers(value: Any) -> Iterator[float]:
    """All numbers inside, but for those in words."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_number_is_on_the_page(name):
    """To three figures: a rounded number is within half of its last place; rates that advice names
    have two. What is drawn and not written again is left out."""
    found = EXAMPLES[name]().to_json()
    coarse: list[float] = []
    if found["advice"] is not None:
        coarse += numbers(
            [found["advice"].pop(key) for key in ("best_rate", "best_interval", "median_rate")]
        )
        coarse += [
            100 * share for share in found["advice"].pop("usual_warmup_shares")
        ]  # per cent of the updates
        del found["advice"]["confidence"]
    text = Page(page_of(name)).text.replace(",", "")
    written = sorted({float(word) for word in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text)})

    def nearest(value: float) -> float:
        return min(abs(value - other) for other in written)

    assert [v for v in numbers(found) if nearest(v) > 0.0051 * abs(v)] == []
    assert [v for v in coarse if nearest(v) > 0.051 * abs(v)] == []


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_finding_and_every_observed_formula_is_on_the_page(name):
    found = EXAMPLES[name]().to_json()
    text = Page(page_of(name)).text
    words = [*strings(found["findings"]), *found["silenced"], found["target"]]
    words += [
        sublayer[key]
        for stack in found["stacks"]
        for sublayer in stack["sublayers"]
        for key in ("formula", "name")
    ]
    words += list(strings([stack["predicted"] for stack in found["stacks"]]))
    if found["advice"] is not None:
        words += [
            found["advice"]["optimizer"],
            found["advice"]["unknown"],
            *found["advice"]["notes"],
        ]
    assert [word for word in words if word not in text] == []


@pytest.mark.thorough
def test_what_to_do_comes_first_then_what_matters_then_the_evidence():
    html = page_of("encoder-decoder")
    order = [
        "2 warnings, 1 note</span></span> — your learning rate 6e-3 is above the usual range",
        'id="h-advice"',
        ">usual learning rate</span>",
        ">warm-up</span>",
        'id="advice-rates-title"',
        'id="h-findings"',
        'id="h-stack-1"',
        'id="h-stack-2"',
        'id="h-further"',
        BETAS.id,
        'id="h-evidence"',
        'id="h-how"',
    ]
    assert sorted(order, key=html.index) == order
    severities = re.findall(r'<li class="finding (\w+)">', page_of("broken"))
    assert severities == ["bad", "mixed", "info"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_file_that_runs_one_script_and_loads_nothing(name):
    html = page_of(name)
    page = Page(html)
    assert not {"iframe", "img", "object"} & set(page.tags)
    assert page.tags.count("script") == 2  # the data and what draws them
    assert "http" not in re.sub(r"http-equiv|xmlns\S*", "", without_script(html))
    assert len(page.ids) == len(set(page.ids))


def test_every_number_explains_itself_with_and_without_a_mouse():
    """What is shown on hover can be reached by keyboard, and stands in a list that opens."""
    html = page_of("encoder-decoder")
    hovered = set(
        map(unescape, re.findall(r'<span class="term" tabindex="0" title="([^"]+)">', html))
    )
    listed = set(map(unescape, re.findall(r"<dt>.*?</dt><dd>(.*?)</dd>", html)))
    assert hovered == {term["meaning"] for term in (*ADVICE_TERMS[:4], *_COLUMN_TERMS)}
    assert hovered < listed
    assert (
        html.count("<summary>What the numbers mean</summary>") == 3
    )  # of the advice and of both stacks


def test_a_rate_out_of_range_is_in_the_headline_and_nothing_is_called_healthy():
    html = render_doctor(replace(healthy(), advice=advice(wanted=0.03)))
    head = html[html.index('<p class="headline">') : html.index("</header>")]
    assert '<span class="mixed">' in head
    assert (
        "no error or warning</span></span> — your learning rate 0.03 is above the usual range"
        in head
    )
    assert "healthy" not in head
    good = render_doctor(replace(healthy(), advice=advice(wanted=4e-4)))
    assert (
        '<span class="good"><span class="dot" aria-hidden="true"></span><span '
        'class="word">healthy</span>' in good
    )
    assert "— your learning rate 4e-4 is in the usual range" in good
    # A command stands as code, and what is around it as text.
    assert "<code>--optimizers adamw --peak-lr around:4.1e-4</code>" in good
    assert "&lt;code&gt;" not in good


def test_rules_that_were_asked_and_those_that_were_not():
    found = replace(
        broken(),
        rules=(
            AskedRule(id=FINAL_NORM.id, asked=True, reason=""),
            AskedRule(id="dead-sublayer", asked=True, reason=""),
            AskedRule(id="checkpoint-tensors", asked=False, reason="no checkpoint was loaded"),
        ),
    )
    html = render_doctor(found)
    rows = html[html.index('aria-label="Rules"') :]
    answers = re.findall(
        r"<tr><th scope=\"row\"><code>(.*?)</code></th><td class=\"message\">(.*?)</td>", rows
    )
    assert answers[:3] == [
        (FINAL_NORM.id, "found something"),
        ("dead-sublayer", "found nothing"),
        ("checkpoint-tensors", "not checked, as no checkpoint was loaded"),
    ]
    assert "2 rules checked; not checked: checkpoint-tensors, as no checkpoint was loaded" in html


def test_trained_weights_have_no_theory_and_it_is_said_why():
    text = Page(render_doctor(replace(diagnosis("m", made("a")), trained=True))).text
    assert "trained; theory, which is of random weights, is left out" in text
    assert "trained; theory" not in Page(page_of("healthy")).text


def test_names_are_text_and_no_markup():
    html = page_of("unknown")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&lt;b&gt;block&lt;/b&gt; &amp; more" in html
    assert not re.search("<(script|b)>", without_script(html))


def test_what_rules_explain_stands_beside_what_they_found():
    rule = Rule(
        id=FINAL_NORM.id,
        severity="error",
        title="A final norm is missing",
        explanation="The stream <grows> & nothing stops it.",
        reference="Xiong et al. 2020, section 3.2",
        faults=lambda patient: (),
    )
    text = Page(render_doctor(broken(), [rule])).text
    assert text.count("A final norm is missing") == 1
    assert "The stream <grows> & nothing stops it. (Xiong et al. 2020, section 3.2)" in text
    assert "A final norm is missing" not in Page(render_doctor(unknown(), [rule])).text


def test_pictures_are_described_and_drawn_only_of_what_was_measured():
    def pictures(name: str) -> list[str]:
        return re.findall(r'<title id="([\w-]+)-title">', page_of(name))

    stack = [f"stack-1-{name}" for name in ("stream", "correlation", "share", "gradient")]
    assert pictures("healthy") == stack
    assert pictures("unknown") == stack[:3]
    assert pictures("encoder-decoder")[:4] == ["advice-rates", "learning", stack[0], stack[1]]
    assert pictures("foreign") == stack
    told = Page(page_of("encoder-decoder")).told
    assert "Size of the stream of encoder.block" in told
    assert re.search(
        r"Gradient norm of a sub-layer: attention [\d.]+ to [\d.]+; theory [\d.]+ to", told
    )
    assert "usual 1.37e-4 to 1.23e-3; yours 6e-3" in told


def test_equal_blocks_are_one_row():
    html = page_of("broken")
    collapsed = html[html.index("Sub-layers</h3>") : html.index("All 48 sub-layers</summary>")]
    assert re.findall(r'<th scope="row">(.*?)</th><td class="kind">([\w-]+)', collapsed) == [
        ("1–24", "attention"),
        ("1–24", "feed-forward"),
    ]
    assert "model.layers.*.attention" in collapsed
    assert html.count('<td class="kind">') == 2 + 48


def test_scales_and_branches_that_reach_nothing():
    found = healthy()
    stack = found.stacks[0]
    scaled = tuple(replace(one, skip_scale=2.828, branch_scale=None) for one in stack.sublayers)
    stack = with_sublayer(replace(stack, sublayers=scaled), 0, reaches_output=False)
    found = replace(found, stacks=(stack,))
    text = Page(render_doctor(found)).text
    assert "x times 2.83" in text
    assert "F(x) times" not in text
    assert "does not reach the output" in text
    assert "does not reach the output" not in Page(page_of("healthy")).text


@pytest.mark.thorough
def test_where_a_stack_comes_from_and_what_it_reads():
    found = diagnosis("m", made("one", blocks=2), made("two", blocks=2), made("three", blocks=2))
    found = with_stack(found, 1, memory=0, memory_normed=False, end_read_by="weights")
    found = with_stack(found, 2, continues=0, cut_by="feed_forward")
    found = replace(found, measured=replace(found.measured, unused_parameters=("spare.weight",)))
    text = Page(render_doctor(found)).text
    assert text.count("Its cross-attention reads one, with no norm between.") == 1
    assert text.count("Weights read its last sum with no norm between.") == 1
    assert (
        text.count("Its source comes from one through feed-forward alone, without a residual sum.")
        == 1
    )
    assert "spare.weight" in text


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_said_to_be_so(value):
    found = diagnosis("m", made("a", blocks=2, theory=True), advice=advice())
    (stack,) = found.stacks
    for i in range(len(stack.sublayers)):
        stack = with_sublayer(
            stack, i, stream_square=value, share=value, correlation=value, gradient_norm=value
        )
    found = replace(found, stacks=(stack,), measured=replace(found.measured, loss_nats=value))
    page = Page(render_doctor(found))
    assert "non-finite" in page.text
    assert not re.search(r"\b(nan|inf)\b", page.text)


@pytest.mark.parametrize("name", ["first", "headline"])
def test_what_to_do_is_larger_than_the_count_below_it(name: str) -> None:
    """The title line is what is read first, on a screen and on a telephone."""
    style = CSS.read_text(encoding="utf-8")
    wide, narrow = re.findall(rf"\.{name} {{[^}}]*font-size: ([\d.]+)rem", style)
    assert (float(wide), float(narrow)) == {"first": (1.3, 1.15), "headline": (1.1, 1.05)}[name]


def test_a_range_of_a_decade_has_several_labels_on_the_axis_of_rates() -> None:
    asked = advice(best=1e-3, wanted=5e-4)
    picture = rates.rates_picture(asked)
    labels = re.findall(r"<text[^>]*>(\d(?:\.\d)?e-\d|0\.\d+)</text>", picture)
    assert len(labels) >= 3, labels
