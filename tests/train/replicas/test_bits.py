"""One, two, three and four processes write the same bytes; `fast` sums are as close as another order of batches is."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.settings.tables import to_toml
from normscope.tasks.run_config import RunConfig
from tiny import SETTINGS, result
from together import ended, started

pytestmark = pytest.mark.sampled(one_in=6)

TRAINING = (
    "train.accumulation=6",
    "train.duration=14",
    "train.validate_every=5",
    "train.checkpoint_every=5",
    "train.clip_norm=0.5",
    "train.threads=1",
    'train.device="cpu"',
    "model.dropout=0.3",
)
TEXT = (
    "model.width=16",
    "model.ffn_width=16",
    "model.heads=2",
    "model.blocks=2",
    "data.sequence_length=24",
    "data.batch_sequences=16",
)
TASKS = {
    "translation": (*SETTINGS, "data.toy_pairs=200", "data.max_tokens=200", "translation.bleu_sentences=300"),
    "masked-lm": ('task="masked-lm"', *TEXT, "masked_lm.valid_sequences=40"),
    "language-model": ('task="language-model"', *TEXT),
}
"""Of translation, 14 updates are several epochs."""
PLACEMENTS = {
    "post-ln": (),
    "pre-ln": (),
    "admin": ('optimizer.name="muon"',),
    "ngpt": (),
    "attn-res": (),
    "pre-to-post": ("adaptive.over=9",),
}
WHOLE = "NORMSCOPE_ALL_BITS" in os.environ
"""Every task, placement and number of processes: minutes of two cores."""
ALL = [(task, placement, (2, 3, 4)) for task in TASKS for placement in PLACEMENTS]
SOME = [
    ("translation", "post-ln", (2,)),
    ("translation", "admin", (3,)),
    ("masked-lm", "pre-ln", (4,)),
    ("language-model", "ngpt", (2,)),
    ("language-model", "attn-res", (3,)),
    ("language-model", "pre-to-post", (4,)),
]


def configured(task: str, placement: str, *settings: str) -> RunConfig:
    """A short training in one thread a process."""
    return load(None, [*TASKS[task], f'model.placement="{placement}"', *PLACEMENTS[placement], *TRAINING, *settings])


def together(config: RunConfig, folder: Path, size: int, *words: str) -> None:
    """Train the configuration in `size` processes."""
    file = folder.with_suffix(".toml")
    file.write_text(to_toml(config), encoding="utf-8")
    command = ("train", str(file), "--run", str(folder))
    for rank, (code, out, err) in enumerate(ended(started(size, *command, *words))):
        assert code == 0, err
        assert out.strip() == ("" if rank else str(folder))
        assert not rank or err == ""


@pytest.mark.parametrize(("task", "placement", "sizes"), ALL if WHOLE else SOME)
def test_several_processes_write_the_bytes_of_one(
    task: str, placement: str, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    config = configured(task, placement)
    together(config, tmp_path / "one", 1)
    for size in sizes:
        together(config, tmp_path / str(size), size)
        assert result(tmp_path / str(size), 14) == result(tmp_path / "one", 14), size
    events = [json.loads(line)["event"] for line in (tmp_path / "one/metrics.jsonl").read_text().splitlines()]
    assert events.count("validation") == 3  # after 5, 10 and 14 updates: something was shared out


def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    config = configured("translation", "post-ln")
    train_run(config, tmp_path / "one")
    several = tmp_path / "several"
    together(config, several, 2)
    for size in (3, 1) if WHOLE else (3,):
        together(config, several, size, "--from-step", "10")
        assert result(several, 14) == result(tmp_path / "one", 14)


def test_fast_sums_differ_no_more_than_another_order_of_the_batches_does(tmp_path: Path) -> None:
    """The same update in one process with its batches added the other way round is the control."""
    settings = ("train.duration=3", 'train.reduction="fast"')
    config = configured("language-model", "ngpt", *settings)
    together(config, tmp_path / "two", 2)
    train_run(config, tmp_path / "one")
    ordered = configured("language-model", "ngpt", *settings, 'train.reduction="ordered"')
    train_run(ordered, tmp_path / "control")
    weights = {
        name: load_file(tmp_path / name / "checkpoints/step-3/model.safetensors") for name in ("one", "two", "control")
    }

    def distance(other: str) -> float:
        return max(float((weights["one"][k] - weights[other][k]).abs().max()) for k in weights["one"])

    scale = max(float(tensor.abs().max()) for tensor in weights["one"].values())
    assert distance("two") <= max(4 * distance("control"), 1e-6 * scale)
    assert torch.isfinite(torch.tensor(distance("two")))
