"""The lines of the manual by which a monitor's measurements go where a training's other numbers
go.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from normscope.monitor import Monitor

ROWS = re.findall(
    r"^\| (TensorBoard|W&B|MLflow|Trackio) \| `(.+?)` \| `(.+?)` \|$",
    (Path(__file__).parents[2] / "docs/doctor.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
LIBRARIES = {"TensorBoard": "tensorboard", "W&B": "wandb", "MLflow": "mlflow", "Trackio": "trackio"}


def written(sink: str, names: dict[str, Any], folder: Path) -> dict[str, float]:
    """What the library itself reads of update 1."""
    if sink == "TensorBoard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        names["writer"].close()
        events = EventAccumulator(str(folder / "events")).Reload()
        return {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]}
    if sink == "W&B":
        names["run"].log({})  # What is logged at a step is kept back until the next one.
        found = {
            name: value
            for name, value in dict(names["run"].summary).items()
            if not name.startswith("_")
        }
        names["run"].finish()
        return found
    if sink == "Trackio":
        from trackio.sqlite_storage import SQLiteStorage

        names["trackio"].finish()
        (logged,) = SQLiteStorage.get_logs("mine", SQLiteStorage.get_runs("mine")[0])
        return {name: value for name, value in logged.items() if name not in ("timestamp", "step")}
    run = names["mlflow"].active_run().info.run_id
    names["mlflow"].end_run()
    return dict(names["mlflow"].get_run(run).data.metrics)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
@pytest.mark.parametrize(("sink", "once", "line"), ROWS, ids=[row[0] for row in ROWS])
def test_every_measurement_arrives(
    sink: str, once: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(LIBRARIES[sink], reason=f"needs {LIBRARIES[sink]}, which the line is about")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    names: dict[str, Any] = {}
    exec(once.replace("; ", "\n"), names)
    model = nn.Sequential(
        *[nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    )
    batch = torch.randn(2, 3, 8)
    model(batch).square().mean().backward()
    names |= {"update": 1, "values": Monitor(model=model, inputs=batch)(1)}
    exec(line, names)
    assert len(names["values"]) > 10
    found = written(sink, names, tmp_path)
    assert found == pytest.approx(names["values"], rel=1e-6)


def test_the_manual_has_a_line_for_each() -> None:
    assert {row[0] for row in ROWS} == set(LIBRARIES)
