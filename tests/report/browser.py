"""Pages in a real browser, where one is installed."""

import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest

FLAGS = [
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


def program() -> str:
    """Where a browser is; skips the test where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"needs a browser to open the page: none of {', '.join(names)} found")
    return found


def opened(page: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        program(),
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        *arguments,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


def frames(page_text: str, widths: list[int]) -> str:
    """The page in frames of the given widths (a headless window is never as narrow as a telephone),
    which report how wide their content is, whether something sticks out of the page, and the
    background they were given."""
    inner = "".join(
        f'<iframe width="{w}" height="900" srcdoc="{escape(page_text)}"></iframe>' for w in widths
    )
    script = """onload = () => { for (const frame of document.querySelectorAll("iframe")) {
      const page = frame.contentDocument, root = page.documentElement
      const line = document.createElement("p")
      const pictures = [...page.querySelectorAll("figure > svg, .plot")]
      const shown = pictures.filter(s => s.checkVisibility())
      const svg = shown.map(s => Math.round(s.getBoundingClientRect().width))
      line.textContent = JSON.stringify({width: root.clientWidth, content: root.scrollWidth,
        pictures: svg, background: frame.contentWindow.getComputedStyle(page.body).backgroundColor})
      document.body.append(line) } }"""
    head = '<!DOCTYPE html><meta charset="utf-8"><style>iframe { border: 0 }</style>'
    return f"{head}<body>{inner}<script>{script}</script>"
