"""A run of several processes goes on in any other number of them, from checkpoints of one kind."""

import hashlib
import json
from pathlib import Path

import pytest

import together
from normscope.train.checkpoint import Checkpoint
from tiny import SETTINGS

LENGTH = ("train.accumulation=4", "train.validate_every=4", "train.checkpoint_every=4")
BRIEF = (*SETTINGS, *LENGTH, "data.max_tokens=128")


def losses(run: Path) -> list[float]:
    """Of all updates and validations that the log holds."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event["nll_nats"] for event in events if "nll_nats" in event]


@pytest.mark.parametrize("how", ["shards", pytest.param("replicas", marks=pytest.mark.thorough)])
def test_two_processes_then_one_then_four_have_the_losses_of_one(how: str, tmp_path: Path) -> None:
    alone, several = tmp_path / "alone", tmp_path / "several"
    together.trained(1, alone, [*BRIEF, "train.duration=12"], "float64")
    for size, updates, kind in ((2, 4, how), (1, 8, "none"), (4, 12, how)):
        settings = [*BRIEF, f"train.duration={updates}", f'train.parallel="{kind}"']
        together.trained(size, several, settings, "float64")
    assert len(losses(several)) == 15
    assert losses(several) == pytest.approx(losses(alone), rel=0, abs=1e-12)
    whole, resumed = together.weights(alone, 12), together.weights(several, 12)
    assert together.furthest(whole, resumed) <= 1e-12


def test_a_checkpoint_of_shards_is_that_of_one_process(tmp_path: Path) -> None:
    """File by file: names, shapes and the seal."""
    settings = [*BRIEF, "train.duration=4"]
    together.trained(1, tmp_path / "one", settings)
    together.trained(2, tmp_path / "two", [*settings, 'train.parallel="shards"'])
    one, two = (tmp_path / name / "checkpoints" / "step-4" for name in ("one", "two"))
    Checkpoint(two).verify()
    assert sorted(path.name for path in one.iterdir()) == sorted(p.name for p in two.iterdir())
    listed = (two / "MANIFEST.sha256").read_text()
    model = (two / "model.safetensors").read_bytes()
    assert hashlib.sha256(model).hexdigest() in listed
    alone, several = together.weights(tmp_path / "one", 4), together.weights(tmp_path / "two", 4)
    assert {name: tensor.shape for name, tensor in alone.items()} == {
        name: tensor.shape for name, tensor in several.items()
    }
    assert not list((tmp_path / "two").rglob("*.tmp*"))
