"""Means of checkpoints: their bytes beside numpy's, what is no parameter, and what the verbs do
with them.
"""

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from normscope.cli.main import main
from normscope.data.opening import toy_corpus
from normscope.errors import UserError
from normscope.model import unit_vectors
from normscope.runs.averaging import asked_checkpoints, average_into
from normscope.runs.run import train_run
from normscope.runs.trained import SCORES, load_run
from normscope.tasks.translation import TRANSLATION
from normscope.train.checkpoint import Checkpoint
from tiny import SHORT, tiny

UPDATES = (4, 8, 12)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve updates with checkpoints of 4, 8 and 12, and perhaps of the best; source and target
    share a table.
    """
    folder = tmp_path_factory.mktemp("averaging") / "run"
    train_run(tiny(*SHORT, "train.validate_every=4"), folder)
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run a command; its exit code, output and messages."""

    def calling(*words: object, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return calling


def saved(run: Path, update: int) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/step-{update}/model.safetensors")


def by_numpy(run: Path, updates: tuple[int, ...]) -> dict[str, bytes]:
    """The mean of each tensor's stack, in float64 and rounded once."""
    files = [saved(run, update) for update in updates]
    return {
        name: np.mean(np.stack([file[name].numpy() for file in files]).astype(np.float64), axis=0)
        .astype(files[0][name].numpy().dtype)
        .tobytes()
        for name in files[0]
    }


@pytest.mark.parametrize(
    ("asked", "updates"), [("3", UPDATES), ("2", (8, 12)), ("12, 4", (4, 12)), ("1", (12,))]
)
def test_the_bytes_are_those_of_the_mean_in_float64_rounded_once(
    run: Path, asked: str, updates: tuple[int, ...]
) -> None:
    loaded = load_run(run, average=asked, device="cpu")
    assert (loaded.update, loaded.averaged_updates) == (updates[-1], updates)
    parameters = dict(loaded.model.named_parameters())
    wanted = by_numpy(run, updates)
    assert parameters.keys() <= wanted.keys()
    for name, parameter in parameters.items():
        assert parameter.detach().numpy().tobytes() == wanted[name]


def test_the_mean_is_rounded_once_where_rounding_every_sum_would_be_seen() -> None:
    """In float32 16,777,216 + 1 + 1 is 16,777,216; the mean of these three needs the sum in
    float64.
    """
    model = torch.nn.Linear(1, 1, bias=False)

    class Saved:
        def __init__(self, value: float) -> None:
            self.value = value

        def load_model(self, model: torch.nn.Module) -> None:
            torch.nn.init.constant_(model.weight, self.value)

    three: Any = [Saved(16_777_216.0), Saved(1.0), Saved(1.0)]
    average_into(model, three)
    assert model.weight.item() == np.float32(16_777_218 / 3)
    assert model.weight.item() != np.float32(
        (np.float32(16_777_216) + np.float32(1) + np.float32(1)) / np.float32(3)
    )


def test_buffers_are_those_of_the_last_and_a_shared_weight_is_averaged_once() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (
                torch.nn.Linear(2, 2, bias=False),
                torch.nn.Linear(2, 2, bias=False),
            )
            self.second.weight = self.first.weight
            self.register_buffer("scale", torch.tensor(0.0))
            self.register_buffer("count", torch.tensor(0))

    class Saved:
        def __init__(self, update: int) -> None:
            self.update = update

        def load_model(self, model: Any) -> None:
            torch.nn.init.constant_(model.first.weight, float(self.update))
            model.scale.fill_(self.update / 10)
            model.count.fill_(self.update)

    model, several = Model(), [Saved(1), Saved(2), Saved(6)]
    average_into(model, several)  # type: ignore[arg-type]
    assert model.second.weight is model.first.weight
    assert model.first.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert (round(float(model.scale), 6), int(model.count)) == (0.6, 6)


def test_what_a_placement_keeps_at_length_one_is_put_back_to_it() -> None:
    """The mean of unit vectors is shorter, and nGPT's formula has none but those of length 1."""
    codec = toy_corpus(5).codec
    models = [
        TRANSLATION.build(tiny("model.placement=ngpt", f"seed={seed}"), codec) for seed in (1, 2)
    ]

    class Saved:
        def __init__(self, model: torch.nn.Module) -> None:
            self.state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

        def load_model(self, model: torch.nn.Module) -> None:
            model.load_state_dict(self.state)

    several: Any = [Saved(model) for model in models]
    average_into(models[0], several)
    units = {id(weight): dimension for weight, dimension in unit_vectors(models[0])}
    assert units
    for name, parameter in models[0].named_parameters():
        mean = np.mean([one.state[name].numpy().astype(np.float64) for one in several], axis=0)
        if id(parameter) in units:
            lengths = np.linalg.norm(mean, axis=units[id(parameter)], keepdims=True)
            assert np.median(lengths) < 0.9
            mean = np.divide(mean, lengths, out=mean, where=lengths > 0)
        np.testing.assert_allclose(parameter.detach().numpy(), mean, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("10", r"has 3 checkpoints, of updates 4, 8, 12\. .* --set train\.keep_checkpoints=10"),
        ("0", "takes a number of checkpoints, such as 10, or updates separated by commas, such as"),
        ("first:2", "takes a number"),
        ("best", "takes a number"),
        ("", "takes a number"),
        ("4,,8", "takes a number"),
        ("4,8,4", "each update counts once, and one is given twice"),
        ("4,9,10", r"has 3 checkpoints, of updates 4, 8, 12, and none of 9 or 10"),
    ],
)
def test_what_cannot_be_averaged_is_said_with_what_can(run: Path, asked: str, says: str) -> None:
    with pytest.raises(UserError, match=f"--average .*{says}"):
        asked_checkpoints(run, asked)


def test_a_damaged_checkpoint_is_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    file = Checkpoint(tmp_path / "run/checkpoints/step-8").folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"step-8/model\.safetensors is damaged"):
        load_run(tmp_path / "run", average="2", device="cpu")


def test_the_verbs_take_the_mean(run: Path, tmp_path: Path, call: Any) -> None:
    short = ("--beam", "1")
    save = ("--save", tmp_path / "mean.json")
    code, out, _ = call("evaluate", run, "--average", "2", *short, *save)
    assert code == 0
    assert "mean of updates 8, 12" in out.splitlines()[0]
    scores = SCORES.read(tmp_path / "mean.json")
    assert (scores["run"], scores["update"], scores["average"]) == (str(run), 12, [8, 12])
    # The mean of a single checkpoint is that checkpoint.
    one = json.loads(call("evaluate", run, "--average", "1", *short, "--json")[1])
    same = json.loads(call("evaluate", run, "--checkpoint", "12", *short, "--json")[1])
    assert one.pop("average") == [12]
    assert one == same
    lines = "bola kade .\n"
    mean = call("translate", run, "--average", "1", *short, typed=lines)[1]
    assert mean == call("translate", run, "--checkpoint", "12", *short, typed=lines)[1]


def test_python_takes_the_mean(run: Path) -> None:
    import normscope

    opened = normscope.open_run(run)
    assert opened.evaluate(average=2, beam=1).settings["average"] == [8, 12]
    model = opened.load(average="4,12").model
    wanted = load_run(run, average="4,12", device="cpu").model
    for mean, other in zip(model.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(mean, other)


def test_one_checkpoint_and_several_are_not_asked_for_together(
    run: Path, tmp_path: Path, call: Any
) -> None:
    for words in (("evaluate", run), ("translate", run), ("export", run, tmp_path / "out")):
        code, _, err = call(*words, "--checkpoint", "last", "--average", "2")
        assert code == 2
        assert err == (
            "error: --checkpoint last takes one checkpoint, and --average 2 several; leave one of "
            "them out\n"
        )


def test_an_export_of_the_mean_has_its_weights(run: Path, tmp_path: Path, call: Any) -> None:
    pytest.importorskip("transformers")
    assert call("export", run, tmp_path / "twelve", "--average", "1")[0] == 0
    assert call("export", run, tmp_path / "same", "--checkpoint", "12")[0] == 0
    assert call("export", run, tmp_path / "mean", "--average", "3")[0] == 0
    files = [
        load_file(tmp_path / name / "model.safetensors") for name in ("twelve", "same", "mean")
    ]
    assert all(torch.equal(files[0][name], files[1][name]) for name in files[0])
    assert not all(torch.equal(files[0][name], files[2][name]) for name in files[0])
