"""Only slow stages are worth a line, and those tell how far they are."""

import io

import pytest
from rich.console import Console

from normscope.cli import console as stages
from normscope.cli.console import StageDisplay


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_slow_stage_is_shown_as_far_as_it_is_by_then(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "_SHOWN_AFTER_SECONDS", 0.0)
    with StageDisplay(console) as display:
        late = stages.LateStages(display)
        with late as told:
            told("rates", 4, 12)
            late._timer.join()
            told("rates", 5, 12)
            display.bar.refresh()
            assert "5/12" in shown(console)
            assert "12/12" not in shown(console)
            told("writing", 0, 1)
            late._timer.join()
        display.bar.refresh()
    # The next stage ends the one before it.
    assert "12/12" in shown(console)
    assert "writing" in shown(console)


def test_a_quick_stage_is_not_shown(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_SHOWN_AFTER_SECONDS", 600.0)
    with StageDisplay(console) as display, stages.LateStages(display) as told:
        told("rules", 0, 1)
        told("rates", 0, 12)
    assert "rules" not in shown(console)
    assert "rates" not in shown(console)
