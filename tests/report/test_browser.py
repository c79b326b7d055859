"""The page in a real browser: nothing logged, nothing sticking out, both themes."""

import json
import re
from pathlib import Path

import pytest

from normscope.report.comparison.contents import ComparisonPage
from normscope.report.comparison.page import write
from report.browser import frames, opened


def test_page_fits_telephone_and_desk_in_both_themes_without_a_word_in_the_log(
    sample_page: str, tmp_path: Path
) -> None:
    page = tmp_path / "frames.html"
    page.write_text(frames(sample_page, [390, 1280]), encoding="utf-8")
    backgrounds = []
    for scheme in (0, 1):  # blink's mojom::PreferredColorScheme: dark, light
        done = opened(
            page, tmp_path, f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom"
        )
        assert "CONSOLE" not in done.stderr
        seen = [json.loads(line) for line in re.findall("<p>({.*?})</p>", done.stdout)]
        assert [frame["width"] for frame in seen] == [390, 1280]
        assert [frame["content"] for frame in seen] == [390, 1280]
        assert all(len(frame["pictures"]) == 6 and min(frame["pictures"]) > 330 for frame in seen)
        backgrounds.append(seen[0]["background"])
    assert backgrounds == ["rgb(15, 19, 24)", "rgb(246, 248, 250)"]


@pytest.mark.thorough
def test_the_written_file_logs_nothing(comparison: ComparisonPage, tmp_path: Path) -> None:
    assert "CONSOLE" not in opened(write(comparison, tmp_path), tmp_path, "--dump-dom").stderr


def test_the_log_would_show_an_error(tmp_path: Path) -> None:
    """Guards the two tests above: what they look for does appear when something is wrong."""
    page = tmp_path / "wrong.html"
    page.write_text("<!DOCTYPE html><script>console.error('seen')</script>", encoding="utf-8")
    assert re.search("CONSOLE.*seen", opened(page, tmp_path, "--dump-dom").stderr)
