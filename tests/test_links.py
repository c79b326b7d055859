"""Every relative link of README, the manual and the results leads to a file that is there, and to a
heading of it.
"""

import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "results/**/*.md", "benchmarks/*.md", "tests/*.md")
    for page in ROOT.glob(pattern)
)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def text(page: Path) -> str:
    """Without what stands in code."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """Names of the headings, as GitHub makes them, and of elements."""
    found: set[str] = set(re.findall(r'<a id="([^"]+)"', text(page)))
    for heading in re.findall(r"^#+ +(.*?) *$", text(page), re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        used = sum(
            1 for name in found if name == slug or re.fullmatch(re.escape(slug) + r"-\d+", name)
        )
        found.add(f"{slug}-{used}" if used else slug)
    return found


def wrong(page: Path, root: Path) -> list[str]:
    """Targets of links that lead nowhere, or out of the repository."""
    found = []
    for target in _LINK.findall(_SPAN.sub("", text(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / unquote(path)).resolve() if path else page
        if (
            not file.exists()
            or not file.is_relative_to(root)
            or (anchor and unquote(anchor) not in anchors(file))
        ):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """A number of somebody else's, which a result does not hold, is no link: <abbr
    title="published">41.02</abbr>.
    """
    assert wrong(ROOT / page, ROOT) == []


def test_every_page_of_the_manual_is_reached_from_the_readme() -> None:
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [
            (page.parent / target.partition("#")[0]).resolve()
            for target in _LINK.findall(text(page))
        ]
        left += [target for target in targets if target.suffix == ".md" and target.is_file()]
    manual = {page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "site"}
    assert manual | set(ROOT.glob("results/*/README.md")) <= reached


def test_no_link_leads_to_a_file_that_is_not_committed() -> None:
    """One that lies here alone would be missing in a clone."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs a git checkout")
    kept = {(ROOT / name).resolve() for name in listed.stdout.splitlines()}
    targets = {
        (ROOT / page).parent.joinpath(target.partition("#")[0]).resolve()
        for page in PAGES
        for target in _LINK.findall(_SPAN.sub("", text(ROOT / page)))
        if not re.match(r"[a-z]+:|#", target)
    }
    assert [str(file) for file in targets - kept if file.is_file()] == []


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text(
        "# One, two\n\n## `x` and x\n\n```\n# no heading\n```\n<a id='no'></a>\n"
    )
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#one-two) [c](other.md#x-and-x) [d](#here) "
        "[e](https://example.org/no)\n"
        "\n"
        "# Here\n"
        "[f](missing.md) [g](other.md#no-heading) ![h](no.svg) [i](../out.md) [j](#there) "
        "`[k](code.md)`\n"
    )
    assert wrong(page, tmp_path) == [
        "missing.md",
        "other.md#no-heading",
        "no.svg",
        "../out.md",
        "#there",
    ]
