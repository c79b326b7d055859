"""What a run may have beside its task: placements, optimisers, measurements, transplanted models;
and what several processes refuse, by name.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import tiny
import together
from normscope.errors import UserError
from normscope.runs.run import train_run

LENGTH = (
    "train.accumulation=3",
    "train.duration=4",
    "train.validate_every=2",
    "train.checkpoint_every=4",
)
TRANSLATION = (*tiny.SETTINGS, *LENGTH, "data.max_tokens=128", "adaptive.over=10")
MODEL = '''"""A model nobody ships."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        return self.norm(x + torch.relu(self.inner(x)))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.last = LAST
        self.head = nn.Linear(16, 11)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        x = x + OUTSIDE
        return self.head(self.last(x.transpose(1, 2)).transpose(1, 2))


def build():
    return Reader()


def batches(number):
    x = torch.randint(11, (4, 6))
    return x, (3 * x + 1) % 11


def validation():
    return [batches(number) for number in range(2)]
'''


def thorough(placement: str, how: str) -> Any:
    """A case that `make test-all` tries."""
    return pytest.param(placement, how, marks=pytest.mark.thorough)


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def agree(
    folder: Path, settings: tuple[str, ...], how: str, dtype: str = "float64", close: float = 1e-12
) -> list[dict[str, Any]]:
    """Compares every number that two processes log with those of one; returns what they log."""
    alone, several = folder / "alone", folder / "several"
    together.trained(1, alone, settings, dtype)
    together.trained(2, several, [*settings, f'train.parallel="{how}"'], dtype)
    for one, other in zip(events(alone), events(several), strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            if isinstance(value, float):
                assert other[key] == pytest.approx(value, rel=close, abs=close), key
    return events(several)


@pytest.mark.parametrize(
    ("placement", "how"),
    [
        ("hyper-connections", "shards"),  # several streams
        ("pre-to-post", "replicas"),  # a number on a schedule, in a buffer
        thorough("hyper-connections", "replicas"),
        thorough("pre-to-post", "shards"),
        thorough("ngpt", "replicas"),  # weights kept at length 1
        thorough("ngpt", "shards"),
        thorough("attn-res", "replicas"),  # all sums so far
        thorough("attn-res", "shards"),
        thorough("residual", "replicas"),
        thorough("residual", "shards"),
    ],
)
def test_placements_are_shared_out(placement: str, how: str, tmp_path: Path) -> None:
    depth = "model.encoder_blocks=2"
    agree(tmp_path, (*TRANSLATION, depth, f'model.placement="{placement}"'), how)


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "radam"])
def test_optimisers_are_sharded(optimizer: str, tmp_path: Path) -> None:
    agree(tmp_path, (*TRANSLATION, f'optimizer.name="{optimizer}"'), "shards")


def test_gradients_and_steps_are_clipped_alike(tmp_path: Path) -> None:
    clipped = ("train.clip_norm=0.1", "train.clip_update_rms=0.5")
    agree(tmp_path, (*TRANSLATION, *clipped), "shards")


@pytest.mark.parametrize("how", ["replicas", "shards"])
def test_the_monitor_measures_what_it_does_in_one_process(how: str, tmp_path: Path) -> None:
    """In float32, which is what it measures in."""
    logged = agree(tmp_path, (*TRANSLATION, "train.monitor_every=2"), how, "float32", 3e-6)
    assert [event["update"] for event in logged if event["event"] == "monitor"] == [1, 3]


def written(folder: Path, *, last: str = "nn.Identity()", outside: str = "0") -> str:
    """The settings by which an own model of this last layer is trained."""
    text = MODEL.replace("LAST", last).replace("OUTSIDE", outside)
    (folder / "my_model.py").write_text(text)
    return f'model.factory="{folder / "my_model.py"}:build"'


def own(folder: Path, **layers: str) -> tuple[str, ...]:
    settings = ('task="own"', written(folder, **layers), "train.threads=1", 'train.device="cpu"')
    return (*settings, *LENGTH)


@pytest.mark.parametrize("how", ["shards", pytest.param("replicas", marks=pytest.mark.thorough)])
def test_a_transplanted_model_is_shared_out(how: str, tmp_path: Path) -> None:
    file = tmp_path / "my_model.py"
    file.write_text(together.OWN)
    model = (f'model.factory="{file}:build"', 'model.placement="peri-ln"')
    machine = ("train.threads=1", 'train.device="cpu"')
    agree(tmp_path, ('task="own"', *model, *machine, *LENGTH), how)


def refused(settings: tuple[str, ...], run: Path, how: str) -> str:
    """The one line with which two processes refuse a run."""
    words = together.words_of(run, [*settings, f'train.parallel="{how}"'])
    ended = together.all_ended(together.forked_ones(2, words))
    assert ended.codes == (2, 2), ended.said
    assert len(ended.lines_of_ours()) == 1, ended.said
    return ended.said.strip().replace("\n", " ")


@pytest.mark.parametrize("how", ["replicas", "shards"])
def test_running_statistics_are_refused(how: str, tmp_path: Path) -> None:
    said = refused(own(tmp_path, last="nn.BatchNorm1d(16)"), tmp_path / "run", how)
    assert said.startswith(f"error: train.parallel = {how}: last keeps running statistics")
    assert not (tmp_path / "run").exists()


def test_weights_read_outside_their_block_are_refused(tmp_path: Path) -> None:
    outside = own(tmp_path, outside="self.blocks[0].inner.weight[0]")
    said = refused(outside, tmp_path / "run", "shards")
    assert "reads weights of a block outside the block's own call" in said
    assert "train.parallel = replicas" in said


def test_muon_is_refused_for_shards(tmp_path: Path) -> None:
    said = refused((*TRANSLATION, 'optimizer.name="muon"'), tmp_path / "run", "shards")
    assert "optimizer muon takes whole matrices" in said


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ((), r'has started 2 processes for one run, and train.parallel is "none".*compare'),
        (('train.parallel="replicas"',), "train.accumulation = 1 batches for 2 processes"),
        (
            ('train.parallel="shards"', "train.accumulation=2", "train.compile=true"),
            "train.compile is for one process",
        ),
    ],
)
def test_settings_that_do_not_fit_several_processes_are_refused_before_they_meet(
    settings: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in together.variables(1, 2, together.new_store()).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=says):
        train_run(tiny.tiny(*settings), tmp_path / "run")
    assert not list(tmp_path.iterdir())
