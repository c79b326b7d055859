"""W&B's datastore through the package's own reader and writer; without the package, the advice."""

import json
from pathlib import Path
from typing import Any

import pytest

from normscope.targets.histories import history_at


def test_what_wandb_writes_is_read(tmp_path: Path) -> None:
    """Where wandb is installed: one name is nested, one value is text, and the file ends in the middle of a block."""
    datastore: Any = pytest.importorskip("wandb.sdk.internal.datastore", reason="needs wandb")
    records: Any = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    file = tmp_path / "run-x.wandb"
    store = datastore.DataStore()
    store.open_for_write(str(file))
    for update in range(1, 30):
        record = records.Record()
        record.history.step.num = update + 100
        for name, value in {"train/loss": 3.0 - update / 100, "train/global_step": update, "note": "text"}.items():
            item = record.history.item.add()
            item.key, item.value_json = name, json.dumps(value)
        item = record.history.item.add()
        item.nested_key.extend(["train", "learning_rate"])
        item.value_json = "0.001"
        store.write(record)
    store.close()
    found = history_at(file)
    assert found.loss.updates == tuple(range(1, 30))
    assert found.loss.at(7) == pytest.approx(2.93)
    assert found.rate.at(29) == 0.001
