"""A pre-trained encoder for the tests of searches, and labelled files."""

from pathlib import Path

import pytest

import labelled_toy
from normscope.runs.config import load
from normscope.runs.run import train_run

SETTINGS = (
    'task="masked-lm"',
    "data.sequence_length=32",
    "data.batch_sequences=8",
    "model.width=16",
    "model.ffn_width=32",
    "model.heads=2",
    "model.blocks=2",
    "model.positions=40",
    "model.dropout=0",
    'model.placement="b2t"',
    "masked_lm.valid_sequences=20",
    'optimizer.name="adamw"',
    "train.duration=2",
    "train.validate_every=1",
    "train.checkpoint_every=1",
    "train.threads=1",
    'train.device="cpu"',
)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked-lm run of two updates under a placement that no other library computes."""
    folder = tmp_path_factory.mktemp("pretrained") / "bert"
    train_run(load(None, SETTINGS), folder)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """To train on, and to judge."""
    return labelled_toy.written(tmp_path)
