"""The page as text: what stands in it, what cannot get out of its place, and that it needs nothing
else.
"""

import errno
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from kinds import examples
from normscope.report.comparison.contents import (
    BlockPlace,
    ComparedConfiguration,
    ComparisonPage,
    GradientProfile,
    Name,
    RunCurve,
    SeedResult,
    Status,
)
from normscope.report.comparison.page import growth, spread, tally, write
from normscope.report.words import Tone, TonedWords
from report.conftest import render

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Tags in order, text by innermost tag, rows of tables; fails on a tag that closes out of
    order.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def test_every_configuration_and_number_is_in_the_table(
    comparison: ComparisonPage, sample_page: str
) -> None:
    page = Page(sample_page)
    for one in comparison.configurations:
        (row,) = [row for row in page.rows if row[0] == str(one.name) and one.name.group in row]
        assert {one.optimizer, "1e-3", f"{one.warmup_updates:,}", one.verdict.text} <= set(row)
        runs = [
            row
            for row in page.rows
            if row[0] == str(one.name) and row[2] in ("finished", "non-finite")
        ]
        expected = [
            [str(one.name), str(s.seed), s.status, f"{s.updates:,}", *cells(s)] for s in one.seeds
        ]
        assert runs == expected
        assert one.summary in page.text
    assert comparison.conclusion[0] in page.text
    assert comparison.conclusion[1] in page.text
    for line in [*comparison.commands, *(v for pair in comparison.what for v in pair)]:
        assert line in page.text


def cells(run: SeedResult) -> list[str]:
    if run.status is Status.NON_FINITE:
        return ["non-finite", "–", "–", f"{run.summed_lr:#.4g}", run.message]
    assert run.valid_loss_nats is not None
    bleus = [f"{run.scores[name]:.2f}" for name in ("BLEU, test", "BLEU, test, tokenised")]
    return [f"{run.valid_loss_nats:.3f}", *bleus, f"{run.summed_lr:#.4g}", "–"]


def test_columns_of_scores_are_there_only_where_a_run_was_scored(
    comparison: ComparisonPage, sample_page: str
) -> None:
    bare = [
        replace(one, seeds=[replace(seed, scores={}) for seed in one.seeds])
        for one in comparison.configurations
    ]
    assert Page(sample_page).text.count("BLEU, test, tokenised") == 2
    assert "BLEU" not in Page(render(replace(comparison, configurations=bare))).text


def one_seed(comparison: ComparisonPage, **changes: object) -> ComparisonPage:
    """The same with the first seed of everything."""

    def first(curves: Sequence[RunCurve]) -> list[RunCurve]:
        return [replace(curve, seeds_values=curve.seeds_values[:1]) for curve in curves]

    return replace(
        comparison,
        configurations=[
            replace(c, seeds=[replace(c.seeds[0], **changes)]) for c in comparison.configurations
        ],
        valid_curves=first(comparison.valid_curves),
        train_curves=first(comparison.train_curves),
        gradient_curves=first(comparison.gradient_curves),
    )


def test_nothing_is_said_of_bands_and_means_where_there_is_one_seed(
    comparison: ComparisonPage, sample_page: str
) -> None:
    several = Page(sample_page).text
    alone = Page(render(one_seed(comparison, scores={"BLEU, valid": 12.5}))).text
    for words in ("band", "mean over", "Small marks"):
        assert words in several
        assert words not in alone
    assert "Each line is one run, of one seed." in alone
    # A score that no run has gets no column, whatever else was scored.
    assert alone.count("BLEU") == alone.count("BLEU, valid") == 2


def test_configurations_that_start_with_the_same_gradients_have_one_row(
    comparison: ComparisonPage,
) -> None:
    names = [one.name for one in comparison.configurations]
    shared = replace(comparison.gradient_profiles[0], names=names[:2])
    page = Page(
        render(replace(comparison, gradient_profiles=[shared, *comparison.gradient_profiles[2:]]))
    )
    rows = [row[0] for row in page.rows if row[1] in ("encoder", "decoder")]
    assert rows == [
        *["Post-LN, warm-up 400; no warm-up"] * 2,
        *["Pre-LN, warm-up 400"] * 2,
        *["Pre-LN, no warm-up"] * 2,
    ]


def test_words_in_pictures_are_text_that_can_be_searched(sample_page: str) -> None:
    pictures = re.findall(r"<svg.*?</svg>", sample_page, re.DOTALL)
    assert len(pictures) == 6
    for picture, words in zip(pictures, PICTURES, strict=True):
        shown = re.findall(r"<text[^>]*>([^<]+)</text>", picture)
        assert words <= set(shown)
        # A font that has the widths of the one the layout was computed with, where the viewer lacks
        # that.
        assert (
            "font-family=\"'DejaVu Sans', 'Bitstream Vera Sans', Verdana, sans-serif\"" in picture
        )
        assert picture.count("DejaVu") == 1


PICTURES = [
    {"update", "nats per target token", "Post-LN, no warm-up", "unigram baseline", "2000"},
    {"update", "nats per target token", "Pre-LN, warm-up 400"},
    {"cross-entropy (nats per target token)", "Pre-LN", "no warm-up"},
    {"update", "gradient norm", "Pre-LN, warm-up 400"},
    {"block", "encoder 1", "decoder 3", "gradient norm", "Post-LN, no warm-up"},
    {"update", "learning rate"},
]
"""Some of what stands in each picture of the page, in order."""


def test_tables_show_where_they_go_on(sample_page: str) -> None:
    """A shadow that stays at the edge, under a cover that moves with the table: two of each."""
    (rule,) = re.findall(r"\n\.scroll \{(.*?)\}", sample_page, re.DOTALL)
    assert rule.count("no-repeat local") == rule.count("no-repeat scroll") == 2


def test_nan_is_never_shown(sample_page: str) -> None:
    assert not re.search(r"\b(nan|inf|none)\b", Page(sample_page).text, re.IGNORECASE)


def test_absent_values_are_named() -> None:
    full, part = (spread(some, "{:.1f}".format) for some in ([1.0, 2.0], [1.0, float("nan"), None]))
    assert (full, part) == (["1.5", "1.0 to 2.0"], ["1.0", "1 of 3 seeds"])
    assert [spread(v) for v in ([], [None], [None, float("inf")])] == [["–"], ["–"], ["non-finite"]]


@pytest.mark.thorough
def test_same_comparison_same_bytes_in_every_process(sample_page: str) -> None:
    here = hashlib.sha256(sample_page.encode()).hexdigest()
    code = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); from conftest import render, "
        "sample; print(hashlib.sha256(render(sample()).encode()).hexdigest())"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == here


def test_page_needs_nothing_else(sample_page: str) -> None:
    page = Page(sample_page)
    assert not {tag for tag, _ in page.tags} & {"img", "iframe", "object", "embed"}
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [
        {"type": "application/json", "id": "explored"},
        {},
    ]
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "data", "action"):
            assert (attributes.get(name) or "#").startswith("#") or (tag, attributes[name]) == (
                "link",
                "data:,",
            )
    without_script = re.sub("<script.*?</script>", "", sample_page, flags=re.DOTALL)
    assert "http" not in without_script.replace("http-equiv", "")


def test_accessible(sample_page: str) -> None:
    page = Page(sample_page)
    assert ("html", {"lang": "en"}) in page.tags
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [
        n for _, attributes in page.tags for n in (attributes.get("aria-labelledby") or "").split()
    ]
    assert set(named) <= set(ids)
    assert sum(tag == "svg" and attributes["role"] == "img" for tag, attributes in page.tags) == 6


def test_contrast_in_both_themes(sample_page: str) -> None:
    css = re.findall(r":root \{(.*?)\}", sample_page, re.DOTALL)[
        :2
    ]  # the third has the system's colours
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in css)
    for theme in (light, dark):
        for ink in ("ink", "soft", "link", "good", "mixed", "stuck", "bad", "plain"):
            assert all(
                contrast(theme[ink], theme[ground]) >= 4.5 for ground in ("page", "panel", "figure")
            ), ink
    assert light.keys() == dark.keys()


def contrast(one: str, other: str) -> float:
    """WCAG 2.1, definition of contrast ratio."""

    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@examples(4)
@given(st.text(st.sampled_from("<>&\"'$_{}%;/\\ab-!# \n"), min_size=1, max_size=30))
@example("</text></td><b a='1' b=\"2\"><!-- &lt;&a; -->")
@example("{{ a }}{% b %}{# a #} $a_{b}$ \\a $ \n%a;")
def test_no_text_gets_out_of_its_place(hostile: str) -> None:
    """Whatever stands in the labels, the page has the tags of a page with harmless labels, and
    shows the text.
    """
    page = Page(render(labelled(hostile)))
    assert tags_without_pictures(page) == tags_of_a_calm_page()
    assert page.rows[1][0] == hostile
    assert hostile in page.text


def tags_without_pictures(page: Page) -> list[str]:
    return [tag for tag, _ in page.tags if tag not in {"path", "use", "defs", "g", "text", "tspan"}]


@cache
def tags_of_a_calm_page() -> list[str]:
    return tags_without_pictures(Page(render(labelled("calm"))))


def labelled(text: str) -> ComparisonPage:
    run = SeedResult(seed=1, status=Status.FAILED, updates=0, summed_lr=0.0, message=text)
    name = Name(text)
    one = ComparedConfiguration(
        name=name,
        warmup_updates=0,
        peak_lr=1e-3,
        optimizer=text,
        seeds=[run],
        verdict=TonedWords(text, Tone.PLAIN),
        summary=text,
    )
    curve = RunCurve(name=name, updates=[0, 1], seeds_values=[[2.0, 1.0]])
    profile = GradientProfile(names=[name], blocks=[BlockPlace(text, 1)], seeds_norms=[[1.0]])
    return ComparisonPage(
        title=text,
        subtitle=text,
        conclusion=(text, text),
        created=text,
        configurations=[one],
        unigram_loss_nats=None,
        valid_curves=[curve],
        train_curves=[curve],
        gradient_profiles=[profile],
        gradient_curves=[curve],
        schedules=[curve],
        what=[(text, text)],
        formulas=[(text, text)],
        commands=[text],
        environment=[(text, text)],
    )


def test_nothing_measured_yet_is_still_a_page(comparison: ComparisonPage) -> None:
    empty = replace(
        comparison,
        configurations=[],
        valid_curves=[],
        train_curves=[],
        gradient_profiles=[],
        gradient_curves=[],
        schedules=[],
        unigram_loss_nats=None,
        what=[],
        formulas=[],
        commands=[],
        environment=[],
    )
    assert "0 configurations, 0 runs." in Page(render(empty)).text


def test_write_leaves_the_page_its_pictures_and_nothing_else(
    comparison: ComparisonPage, sample_page: str, tmp_path: Path
) -> None:
    page = write(comparison, tmp_path / "new" / "folder")
    assert page.read_text(encoding="utf-8") == sample_page
    names = {"report.html", "final_loss.svg", "valid_loss.svg", "train_loss.svg"} | {
        "gradient_norms.svg",
        "gradient_over_updates.svg",
        "learning_rate.svg",
    }
    assert {path.name for path in page.parent.iterdir()} == names


def test_a_failed_write_keeps_the_old_page(
    comparison: ComparisonPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write(comparison, tmp_path)
    before = page.read_bytes()
    monkeypatch.setattr(
        Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        write(replace(comparison, title="another"), tmp_path)
    assert page.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 7


def test_words_about_runs(comparison: ComparisonPage, sample_page: str) -> None:
    ended = "4 configurations, 12 runs: 11 finished, 1 stopped at a non-finite value."
    assert tally(comparison.configurations) == ended
    dots = re.findall(r'<li><span class="(\w+)"><span class="dot"', sample_page)
    assert dots == ["good", "stuck", "good", "mixed"]


def test_growth_is_last_over_first(comparison: ComparisonPage) -> None:
    profile = replace(
        comparison.gradient_profiles[0], seeds_norms=[[1.0] * 5 + [3.0] + [2.0] * 5 + [1.0]] * 2
    )
    assert growth(profile) == [("encoder", 1.0, 3.0, 3.0), ("decoder", 2.0, 1.0, 0.5)]
