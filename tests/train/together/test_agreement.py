"""Several processes train the run that one process does, within rounding."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import tiny
import together

SMALL = (
    "model.width=16",
    "model.ffn_width=16",
    "model.heads=2",
    "model.blocks=2",
    "data.sequence_length=16",
    "data.batch_sequences=4",
    "train.threads=1",
    'train.device="cpu"',
)
TASKS = {
    "translation": (*tiny.SETTINGS, "data.max_tokens=128"),
    "language-model": ('task="language-model"', *SMALL),
    "masked-lm": ('task="masked-lm"', *SMALL),
    "own": ("train.threads=1", 'train.device="cpu"'),
}
LENGTH = ("train.accumulation=5", "train.validate_every=10", "train.checkpoint_every=50")
CLOSE = {"float64": 1e-12, "float32": 3e-6}


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run has left."""

    run: Path

    def losses(self) -> list[float]:
        """Of every update and every validation, in the order of the log."""
        lines = (self.run / "metrics.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [event["nll_nats"] for event in events if "nll_nats" in event]


def trained(folder: Path, size: int, how: str, settings: tuple[str, ...], dtype: str) -> Trained:
    run = folder / f"{size}-{how}"
    together.trained(size, run, [*settings, f'train.parallel="{how}"'], dtype)
    return Trained(run)


def settings_of(task: str, folder: Path, updates: int) -> tuple[str, ...]:
    """Of a run; the own model's file is written into the folder."""
    settings = (*TASKS[task], *LENGTH, f"train.duration={updates}")
    if task != "own":
        return settings
    (folder / "my_model.py").write_text(together.OWN)
    return (f'model.factory="{folder / "my_model.py"}:build"', 'task="own"', *settings)


def agree(folder: Path, task: str, sizes: tuple[int, ...], how: str, dtype: str) -> None:
    """Trains with one process and with each number of several."""
    updates = 50
    settings = settings_of(task, folder, updates)
    alone = trained(folder, 1, "none", settings, dtype)
    for size in sizes:
        several = trained(folder, size, how, settings, dtype)
        losses = several.losses()
        assert len(losses) == updates + 5
        assert losses == pytest.approx(alone.losses(), rel=0, abs=CLOSE[dtype])
        one, other = together.weights(alone.run, updates), together.weights(several.run, updates)
        assert together.furthest(one, other) <= CLOSE[dtype]


@pytest.mark.parametrize(("task", "how"), [("translation", "replicas"), ("own", "shards")])
def test_two_processes_train_what_one_does_in_float64(task: str, how: str, tmp_path: Path) -> None:
    agree(tmp_path, task, (2,), how, "float64")


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("how", ["replicas", "shards"])
@pytest.mark.parametrize("task", TASKS)
def test_two_and_four_processes_train_what_one_does(
    task: str, how: str, dtype: str, tmp_path: Path
) -> None:
    agree(tmp_path, task, (2, 4), how, dtype)


@pytest.mark.parametrize("how", ["replicas", "shards"])
def test_the_batches_of_an_update_hold_unequal_numbers_of_targets(how: str, tmp_path: Path) -> None:
    """A mean of the processes' means would differ by far more than rounding."""
    settings = settings_of("own", tmp_path, 1)
    alone = trained(tmp_path, 1, "none", settings, "float64")
    several = trained(tmp_path, 2, how, settings, "float64")
    first = json.loads((several.run / "metrics.jsonl").read_text().splitlines()[0])
    assert several.losses() == pytest.approx(alone.losses(), rel=1e-14)
    assert first["event"] == "initialisation"
    whole = json.loads((alone.run / "metrics.jsonl").read_text().splitlines()[0])
    assert first["gradient_norms"] == pytest.approx(whole["gradient_norms"], rel=2e-7)
