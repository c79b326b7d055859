"""A browser that hangs, ends, or does not end when asked, fails a test with what was waited for,
and is killed.
"""

import os
import sys
from pathlib import Path

import pytest

from report import devtools

SILENT = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.mark.parametrize(
    ("code", "seconds", "message"),
    [
        (
            f"{SILENT}time.sleep(600)",
            0.5,
            "took more than 0.5 s for the answer to Target.createTarget",
        ),
        ("", 60.0, "has ended before the answer to Target.createTarget"),
        # Events alone are no answer.
        (
            f"{SILENT}import os\nwhile os.write(4, b'{{}}' + bytes(1)): time.sleep(0.01)",
            0.5,
            "took more than 0.5 s",
        ),
    ],
    ids=["silent", "ended", "chatty"],
)
def test_no_wait_is_without_end(
    code: str, seconds: float, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, told = tmp_path / "browser", tmp_path / "process"
    browser.write_text(
        f"#!{sys.executable}\nimport os\nopen({str(told)!r}, 'w').write(str(os.getpid()))\n{code}",
        encoding="utf-8",
    )
    browser.chmod(0o755)
    monkeypatch.setattr(devtools, "program", lambda: str(browser))
    monkeypatch.setattr(devtools, "ANSWER_SECONDS", seconds)
    monkeypatch.setattr(devtools, "END_SECONDS", 0.1)
    with pytest.raises(AssertionError, match=message), devtools.chromium(tmp_path):
        pass
    if told.exists():  # a slow start: terminated before its first line
        with pytest.raises(ProcessLookupError):
            os.kill(int(told.read_text()), 0)
