"""metrics.jsonl: whatever happens to a line of it is found, by line; and a last line that a kill
tore is left out.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from normscope.errors import UserError
from normscope.train.metrics import DamagedMetrics, LogMark, MetricsLog, read_events
from tiny import flip

EVENTS: list[dict[str, Any]] = [
    {
        "event": "update",
        "update": number,
        "nll_nats": 9 - number / 7,
        "placement": "x ← LN(x)",
        "deep": {"a": [1, 2]},
    }
    for number in range(1, 13)
]


def written(file: Path, events: list[dict[str, Any]] = EVENTS) -> LogMark:
    log = MetricsLog(file, LogMark())
    for event in events:
        log.append(event)
    mark = log.mark()
    log.close()
    return mark


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written(tmp_path / "metrics.jsonl")
    return tmp_path / "metrics.jsonl"


def test_what_was_written_is_read_and_every_line_is_json(file: Path) -> None:
    assert read_events(file) == EVENTS
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [
        {key: value for key, value in line.items() if key != "guard"} for line in lines
    ] == EVENTS
    assert len({line["guard"] for line in lines}) == len(lines)


def test_a_flipped_bit_of_any_byte_is_found_in_its_line(file: Path, stride: int) -> None:
    written(file, EVENTS[:4])
    content, dice = file.read_bytes(), random.Random(4)
    ends = [
        8 * byte + bit
        for byte, value in enumerate(content)
        if value == ord("\n")
        for bit in range(8)
    ]
    for bit in [*(8 * byte + dice.randrange(8) for byte in range(0, len(content), stride)), *ends]:
        flip(file, bit)
        with pytest.raises(DamagedMetrics, match=f"{file}:{1 + content[: bit // 8].count(10)}: "):
            read_events(file)
        flip(file, bit)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: lines[:4] + lines[5:], 5),
        (lambda lines: lines[1:], 1),
        (lambda lines: lines[:5] + lines[4:], 6),
        (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 5),
        (lambda lines: [*lines[:7], b"\n", *lines[7:]], 8),
        (lambda lines: [*lines, b'{"event": "finished"}\n'], 13),
        (lambda lines: [*lines, lines[-1]], 13),
    ],
    ids=["lost", "lost at the beginning", "repeated", "moved", "empty", "added", "the last again"],
)
def test_lines_out_of_their_order_are_found(
    file: Path, change: Callable[[list[bytes]], list[bytes]], line: int
) -> None:
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
    with pytest.raises(DamagedMetrics, match=f":{line}: this line is damaged"):
        read_events(file)


def test_a_last_line_that_was_torn_is_left_out_wherever_it_was(file: Path) -> None:
    content = file.read_bytes()
    begin = content.rindex(b"\n", 0, -1) + 1
    for end in range(begin, len(content)):
        file.write_bytes(content[:end])
        assert read_events(file) == EVENTS[:-1]


def test_lines_that_a_checkpoint_counts_on_must_be_there_whole(file: Path) -> None:
    content = file.read_bytes()
    assert read_events(file, after_bytes=len(content)) == EVENTS
    file.write_bytes(content[:-1])  # the last line is torn
    assert read_events(file, after_bytes=content[:-1].rfind(b"\n") + 1) == EVENTS[:-1]
    with pytest.raises(DamagedMetrics, match="lines are missing"):
        read_events(file, after_bytes=len(content))
    file.unlink()
    assert read_events(file) == []
    with pytest.raises(DamagedMetrics, match="has 0 bytes, but the checkpoint was saved after"):
        read_events(file, after_bytes=1)


def test_a_log_goes_on_from_a_mark_with_the_bytes_of_one_never_closed(
    file: Path, tmp_path: Path
) -> None:
    mark = written(tmp_path / "other", EVENTS[:5])
    log = MetricsLog(file, mark)
    for event in EVENTS[5:]:
        log.append(event)
    log.close()
    assert written(tmp_path / "whole").bytes == file.stat().st_size
    assert file.read_bytes() == (tmp_path / "whole").read_bytes()


def test_only_what_a_checkpoint_has_seen_must_be_whole(file: Path, tmp_path: Path) -> None:
    """A power cut may leave anything behind it."""
    mark = written(tmp_path / "other", EVENTS[:5])
    content = file.read_bytes()
    file.write_bytes(content[: mark.bytes] + b"\0" * 300 + b"\n")
    MetricsLog(file, mark).close()
    assert file.read_bytes() == content[: mark.bytes]
    for bit in random.Random(1).sample(range(8 * mark.bytes), 200):
        flip(file, bit)
        with pytest.raises(UserError, match=r"metrics.jsonl.*--from-step"):
            MetricsLog(file, mark)
        flip(file, bit)


def test_the_lines_of_another_run_are_not_taken_for_those_of_the_checkpoint(
    file: Path, tmp_path: Path
) -> None:
    mark = written(tmp_path / "other", EVENTS[:5])
    written(file, [event | {"nll_nats": 8.0 + event["update"]} for event in EVENTS])
    with pytest.raises(UserError, match=r"metrics.jsonl"):
        MetricsLog(file, mark)
