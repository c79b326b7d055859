"""Every line of a run's log is held to what a run writes, and read as columns without a loss."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normscope.train import RunFolder
from normscope.train.events import EventOrder, event_of
from normscope.train.metrics import DamagedMetrics, read_events
from normscope.train.record import record_of
from tiny import write_events

UPDATE: dict[str, Any] = {
    "event": "update",
    "update": 3,
    "epoch": 0.5,
    "lr": 1e-3,
    "loss_nats": 2.5,
    "nll_nats": 2.25,
    "gradient_norm": 0.75,
    "target_tokens": 128,
}
HUGE = 10**400


@pytest.mark.parametrize(
    "event",
    [
        UPDATE,
        {"event": "update", "update": 2**53},
        UPDATE | {"nll_nats": -1.0, "clipped_parameters": 7, "of a later version": {"a": [1, {}]}},
        UPDATE | {"nll_nats": 1e100, "gradient_norm": 0.0, "lr": 1e-320},
        {"event": "initialisation", "update": 0, "gradient_norms": {"h.0.w": 0.5}},
        {"event": "monitor", "update": 3, "normscope/encoder/block_1/a/gradient_norm": 0.5},
        {"event": "validation", "update": 3, "nll_nats": 2.0, "bleu": 31.5},
        {"event": "skipped", "update": 3, "reason": "the loss (nan)"},
        {"event": "non-finite", "update": 3, "reason": "the loss (nan)", "summed_lr": 0.5},
        {"event": "decided", "update": 3, "reason": "at chance", "validations": 3},
        {"event": "finished", "update": 3, "best_update": 2, "skipped_updates": 0},
        {"event": "of a later version", "update": 3, "much": [[]]},
    ],
)
def test_what_a_run_writes_is_read_as_it_was_written(event: dict[str, Any]) -> None:
    assert event_of(json.dumps(event).encode()) == event


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"update": True}, "'update.update' must be a whole number, got True"),
        ({"update": 3.0}, "'update.update' must be a whole number, got 3.0"),
        ({"update": "3"}, "'update.update' must be a whole number, got '3'"),
        ({"update": -1}, "'update.update' must be at least 0, got -1"),
        (
            {"update": 2**53 + 1},
            r"must be at most 9.0072e\+15, got 9007199254740993",
        ),
        ({"update": HUGE}, "'update.update' must be at most"),
        ({"update": None}, "'update.update' must be a whole number, got None"),
        ({"event": 3}, "'event' must be text, got 3"),
        ({"event": ["update"]}, "'event' must be text"),
        ({"nll_nats": math.nan}, "'update.nll_nats' must be a finite number, got nan"),
        ({"nll_nats": -math.inf}, "'update.nll_nats' must be a finite number, got -inf"),
        ({"nll_nats": True}, "'update.nll_nats' must be a number, got True"),
        ({"nll_nats": "2.0"}, "'update.nll_nats' must be a number, got '2.0'"),
        ({"nll_nats": None}, "'update.nll_nats' must be a number, got None"),
        ({"nll_nats": [2.0]}, r"'update.nll_nats' must be a number, got \[2.0\]"),
        ({"nll_nats": {"a": 1}}, "'update.nll_nats' must be a number"),
        ({"nll_nats": 1e101}, r"'update.nll_nats' must be at most 1e\+100"),
        ({"nll_nats": 10**200}, r"'update.nll_nats' must be at most 1e\+100"),
        ({"nll_nats": HUGE}, "'update.nll_nats' must be"),
        ({"gradient_norm": -0.5}, "'update.gradient_norm' must be at least 0"),
        ({"lr": -1e-9}, "'update.lr' must be at least 0"),
        ({"target_tokens": 1.5}, "'update.target_tokens' must be a whole number"),
        ({"event": "validation", "bleu": "31"}, "'validation.bleu' must be a number"),
        ({"event": "finished", "best_update": []}, "'finished.best_update' must be a whole"),
        ({"event": "decided", "validations": "3"}, "'decided.validations' must be a whole number"),
        ({"event": "non-finite", "reason": 5}, "'non-finite.reason' must be text"),
        ({"event": "skipped", "reason": {}}, "'skipped.reason' must be text"),
        ({"event": "monitor", "a": "b"}, "'a' must be a number, got 'b'"),
        ({"event": "monitor", "a": 1e300}, "'a' must be at most"),
        ({"event": "initialisation", "gradient_norms": [1.0]}, "'initialisation.gradient_norms'"),
        ({"event": "initialisation", "gradient_norms": {"w": None}}, "gradient_norms.w' must be"),
        ({"event": "of a later version", "update": "3"}, "'update' must be a whole number"),
    ],
)
def test_what_no_run_writes_is_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        event_of(json.dumps(UPDATE | changed).encode())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"[]", "it must be a table, got"),
        (b'"update"', "it must be a table, got"),
        (b"", "it is no JSON"),
        (b"\xff", "it is no JSON"),
        (b'{"update": 3}', "it does not say which event it is"),
        (b'{"event": "update"}', "'update.update' is missing"),
        (b'{"event": "skipped", "update": 1, "reason": "\\ud800"}', "it is no JSON"),
        (b'{"event": "update", "update": 1, "a": ' + b"[" * 5000 + b"]" * 5000 + b"}", "recursion"),
    ],
)
def test_what_is_no_event_is_named(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        event_of(line)


def at(kind: str, update: int) -> dict[str, Any]:
    return {"event": kind, "update": update}


@pytest.mark.parametrize(
    "events",
    [
        [],
        [at("finished", 0)],
        [at("initialisation", 0), at("update", 1), at("monitor", 1), at("validation", 1)],
        [at("update", 1), at("skipped", 2), at("update", 3), at("non-finite", 4)],
        [at("update", 2), at("of a later version", 2), at("of a later version", 2)],
    ],
)
def test_events_in_their_order_are_read(events: list[dict[str, Any]], tmp_path: Path) -> None:
    write_events(RunFolder(tmp_path), events)
    assert read_events(tmp_path / "metrics.jsonl") == events


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([at("update", 2), at("update", 1)], ":2: .*update 1 stands behind update 2"),
        ([at("update", 2), at("validation", 1)], ":2: .*update 1 stands behind update 2"),
        ([at("update", 1), at("update", 1)], ":2: .*update 1 has two events of the kind 'update'"),
        ([at("update", 1), at("skipped", 1)], ":2: .*update 1 has two events of the kind 'update'"),
        ([at("validation", 0), at("validation", 0)], "update 0 has two events of the kind 'valid"),
        ([at("update", 0)], ":1: .*updates are counted from 1, got 0"),
    ],
)
def test_events_out_of_their_order_are_refused_by_their_line(
    events: list[dict[str, Any]], said: str, tmp_path: Path
) -> None:
    write_events(RunFolder(tmp_path), events)
    with pytest.raises(DamagedMetrics, match=said):
        read_events(tmp_path / "metrics.jsonl")


def test_a_record_holds_in_columns_what_the_lines_hold(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"event": "initialisation", "update": 0, "gradient_norms": {"h.0.w": 0.5}},
        UPDATE | {"update": 1},
        {"event": "validation", "update": 1, "nll_nats": 4.0, "bleu": 1.5},
        {"event": "monitor", "update": 1, "a": 0.5},
        {"event": "skipped", "update": 2, "reason": "the loss (nan)"},
        {"event": "of a later version", "update": 2},
        {"event": "update", "update": 3, "nll_nats": 1.5},
        {"event": "validation", "update": 3, "nll_nats": 3.0},
        {"event": "non-finite", "update": 4, "reason": "the loss (nan)"},
    ]
    write_events(RunFolder(tmp_path), events)
    record = RunFolder(tmp_path).record()

    def found(kind: str, quantity: str) -> list[str]:
        return [str(value) for value in record.column(kind, quantity)]

    def wanted(kind: str, quantity: str) -> list[str]:
        return [str(float(e.get(quantity, "nan"))) for e in events if e["event"] == kind]

    for quantity in ("update", "nll_nats", "lr", "gradient_norm", "target_tokens", "epoch"):
        assert found("update", quantity) == wanted("update", quantity)
    for quantity in ("update", "nll_nats", "bleu"):
        assert found("validation", quantity) == wanted("validation", quantity)
    assert list(record.initialisations) == events[:1]
    assert list(record.monitored) == [events[3]]
    assert (record.last, record.stopped_at, record.first_nats) == (events[-1], 4, 2.25)
    assert record.unknown == {"of a later version": 1}
    assert record.absent == [
        "gradient_norm of 1 of 2 updates",
        "lr of 1 of 2 updates",
        "target_tokens of 1 of 2 updates",
        "epoch of 1 of 2 updates",
    ]
    assert RunFolder(tmp_path).ending() == events[-1]


def test_the_record_of_an_empty_log_is_empty(tmp_path: Path) -> None:
    record = RunFolder(tmp_path).record()
    assert (record.last, record.stopped_at, record.absent) == (None, None, [])
    assert np.isnan(record.first_nats)
    assert record.column("update", "nll_nats").shape == (0,)
    assert np.isnan(record_of([UPDATE]).first_nats), "update 3 is not the first"
    assert RunFolder(tmp_path).ending() is None


def test_an_order_begins_with_the_first_update() -> None:
    with pytest.raises(ValueError, match="updates are counted from 1"):
        EventOrder().take(at("update", 0))
    EventOrder().take(at("initialisation", 0))
