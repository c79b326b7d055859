"""The page in a real browser: nothing logged, nothing sticking out, both themes."""

import json
import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest

from normscope.report import Comparison, render, write

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--hide-scrollbars",
]


def opened(page: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip(f"needs a browser to open the page: none of {', '.join(names)} found")
    command = [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


def frames(page_text: str, widths: list[int]) -> str:
    """The page in frames of the given widths (a headless window is never as narrow as a telephone), which report how
    wide their content is, whether something sticks out of the page, and the background they were given."""
    inner = "".join(f'<iframe width="{w}" height="900" srcdoc="{escape(page_text)}"></iframe>' for w in widths)
    script = """onload = () => { for (const frame of document.querySelectorAll("iframe")) {
      const page = frame.contentDocument, root = page.documentElement, line = document.createElement("p")
      const svg = [...page.querySelectorAll("figure svg")].map(s => Math.round(s.getBoundingClientRect().width))
      line.textContent = JSON.stringify({width: root.clientWidth, content: root.scrollWidth,
        pictures: svg, background: frame.contentWindow.getComputedStyle(page.body).backgroundColor})
      document.body.append(line) } }"""
    head = '<!DOCTYPE html><meta charset="utf-8"><style>iframe { border: 0 }</style>'
    return f"{head}<body>{inner}<script>{script}</script>"


def test_page_fits_telephone_and_desk_in_both_themes_without_a_word_in_the_log(
    comparison: Comparison, tmp_path: Path
) -> None:
    page = tmp_path / "frames.html"
    page.write_text(frames(render(comparison), [390, 1280]), encoding="utf-8")
    backgrounds = []
    for scheme in (0, 1):  # blink's mojom::PreferredColorScheme: dark, light
        done = opened(page, tmp_path, f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom")
        assert "CONSOLE" not in done.stderr
        seen = [json.loads(line) for line in re.findall("<p>({.*?})</p>", done.stdout)]
        assert [frame["width"] for frame in seen] == [390, 1280]
        assert [frame["content"] for frame in seen] == [390, 1280]
        assert all(len(frame["pictures"]) == 5 and min(frame["pictures"]) > 330 for frame in seen)
        backgrounds.append(seen[0]["background"])
    assert backgrounds == ["rgb(15, 19, 24)", "rgb(246, 248, 250)"]


def test_the_written_file_logs_nothing(comparison: Comparison, tmp_path: Path) -> None:
    assert "CONSOLE" not in opened(write(comparison, tmp_path), tmp_path, "--dump-dom").stderr


def test_the_log_would_show_an_error(tmp_path: Path) -> None:
    """Guards the two tests above: what they look for does appear when something is wrong."""
    page = tmp_path / "wrong.html"
    page.write_text("<!DOCTYPE html><script>console.error('seen')</script>", encoding="utf-8")
    assert re.search("CONSOLE.*seen", opened(page, tmp_path, "--dump-dom").stderr)
