"""Faults that were dealt into waves before the first was run, and what waves/README.md says of
them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.waves.case import Fault, found, says
from doctor.waves.faults import FAULTS, SIZE, dealt

PAGE = (Path(__file__).parent / "waves/README.md").read_text(encoding="utf-8")
BY_TITLE = {fault.title: fault for fault in FAULTS}
ROWS = re.findall(r"^\| (\d) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)


def missed_at_first(wave: int) -> list[str]:
    """What the page lists under a wave's heading."""
    (section,) = re.findall(rf"^## Wave {wave}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^- (.*?): ", section, re.MULTILINE)


NOT_YET = {
    "a word is taken for padding": (
        "a batch that was drawn has the index of padding among its words too, and is no fault"
    ),
    "cosines times a temperature": (
        "what bounds the logits is known of an output matrix alone, and here is none"
    ),
}
"""Faults that are not found, and why."""


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("title", [title for title in BY_TITLE if title not in NOT_YET])
def test_a_fault_is_told_in_the_right_words_and_its_twin_is_silent(title: str) -> None:
    fault = BY_TITLE[title]
    told = found(fault.bug())
    assert any(says(fault, one) for one in told), [one.message for one in told]
    assert [f"{one.id}: {one.message}" for one in found(fault.twin())] == []


def test_every_fault_is_dealt_once() -> None:
    titles = [fault.title for wave in dealt() for fault in wave]
    assert len(titles) == len({*titles}) == len(FAULTS)
    assert {len(wave) for wave in dealt()} == {SIZE}


def test_the_page_names_what_each_wave_missed_at_first() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number, _ in _numbered()]
    for (_, before, after, silent), (number, wave) in zip(ROWS, _numbered(), strict=True):
        missed = missed_at_first(number)
        assert {*missed} <= {fault.title for fault in wave}
        assert int(before) == len(wave) - len(missed)
        # What the sampled test asks of every fault and every twin.
        still = [fault.title for fault in wave if fault.title in NOT_YET]
        assert {*still} <= {*missed}
        assert int(after) + len(still) == int(silent) == len(wave)


def _numbered() -> Iterator[tuple[int, list[Fault]]]:
    yield from enumerate(dealt(), start=1)
