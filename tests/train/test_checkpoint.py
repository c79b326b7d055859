"""What is refused: any flipped bit, anything missing, anything that is not the tensors of this
model.
"""

import hashlib
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from normscope.errors import UserError
from normscope.runs.run import train_run
from normscope.train import RunFolder, checkpoint
from normscope.train.checkpoint import Checkpoint, metrics_bytes
from tiny import SHORT, flip, result, tiny

FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
MANIFEST = "MANIFEST.sha256"


def sealed(folder: Path) -> Checkpoint:
    """The checkpoint with a manifest that fits whatever is in its files now."""
    digests = [
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in FILES
    ]
    (folder / MANIFEST).write_text("".join(digests))
    return Checkpoint(folder)


def positions(file: Path, stride: int) -> list[int]:
    """Bits to flip: one in each byte of the manifest and of the state, and 150 anywhere in the
    tensors, or fewer.

    And every bit of the manifest's line ends: one of them makes a vertical tab, at which Python
    splits lines, too.
    """
    bits, dice = 8 * file.stat().st_size, random.Random(file.name)
    if file.name in (MANIFEST, "state.json"):
        ends = [byte for byte, value in enumerate(file.read_bytes()) if value == ord("\n")]
        return [byte * 8 + dice.randrange(8) for byte in range(0, bits // 8, stride)] + [
            b * 8 + bit for b in ends for bit in range(8)
        ]
    return [0, bits - 1, *dice.sample(range(bits), 150 // stride)]


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_any_flipped_bit_is_refused_by_name_and_the_checkpoint_before_is_offered(
    copy: Path, name: str, stride: int
) -> None:
    file = copy / "checkpoints/step-12" / name
    for bit in positions(file, stride):
        flip(file, bit)
        with pytest.raises(UserError) as error:
            checkpoint.intact(copy / "checkpoints")
        flip(file, bit)
        message = str(error.value)
        assert (
            MANIFEST in message if name == MANIFEST else f"step-12/{name} is damaged" in message
        ), (bit, message)
        assert (
            "Intact, newest first: step-10, step-8, step-5, step-4. Add --from-step 10 "
            "(from_step=10 in" in message
        )
    assert checkpoint.intact(copy / "checkpoints") == Checkpoint(copy / "checkpoints/step-12")


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize("how", ["missing", "empty", "shorter", "a folder"])
def test_a_file_that_is_not_whole_is_refused_by_name(copy: Path, name: str, how: str) -> None:
    file = copy / "checkpoints/step-12" / name
    content = file.read_bytes()
    file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how != "missing":
        file.write_bytes(b"" if how == "empty" else content[: len(content) // 2])
    with pytest.raises(UserError, match=rf"{MANIFEST}|step-12/{name}") as error:
        checkpoint.intact(copy / "checkpoints")
    assert name == MANIFEST or f"step-12/{name} is" in str(error.value)


def test_the_offer_skips_checkpoints_that_are_damaged_too(copy: Path) -> None:
    for step in (12, 10, 8):
        flip(copy / f"checkpoints/step-{step}/model.safetensors", 4321)
    with pytest.raises(
        UserError, match=r"Intact, newest first: step-5, step-4. Add --from-step 5 "
    ):
        checkpoint.intact(copy / "checkpoints")
    with pytest.raises(
        UserError, match=r"step-10/model.safetensors.*first: step-5, step-4. Add --from-step 5 "
    ):
        checkpoint.intact(copy / "checkpoints", update=10)
    for step in (5, 4):
        (copy / f"checkpoints/step-{step}/state.json").unlink()
    with pytest.raises(
        UserError,
        match=r"No other checkpoint of the run is intact. Its config.toml and metrics.jsonl",
    ):
        checkpoint.intact(copy / "checkpoints")


def test_a_newer_checkpoint_than_the_damaged_one_is_offered_and_can_be_taken(
    copy: Path, short: Path
) -> None:
    flip(copy / "checkpoints/step-8/model.safetensors", 4321)
    with pytest.raises(
        UserError,
        match=r"step-8/.* is damaged.*first: step-12, step-10, step-5, step-4. Add --from-st",
    ):
        train_run(tiny(*SHORT), copy, from_step=8)
    train_run(tiny(*SHORT), copy, from_step=10)
    assert result(copy, 12) == result(short, 12)


def test_other_things_beside_the_checkpoints_are_no_checkpoints(copy: Path) -> None:
    for name in ("step-", "step-²", "step-x", "step-7.tmp", ".unfinished-step-99"):
        (copy / "checkpoints" / name).mkdir()
    assert [found.update for found in checkpoint.existing(copy / "checkpoints")] == [
        4,
        5,
        8,
        10,
        12,
    ]


def test_a_pickle_in_a_fitting_manifest_is_not_run(copy: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "exploded",)

    folder = copy / "checkpoints/step-12"
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    found = sealed(folder)
    found.verify()
    with pytest.raises(UserError, match=r"model.safetensors is not a file of tensors"):
        found.load_model(nn.Linear(1, 1))
    assert not (tmp_path / "exploded").exists()


def test_a_disk_that_fails_where_torch_maps_weights_is_told_as_one(
    copy: Path, monkeypatch: Any
) -> None:
    """Torch has the system's error in its own words alone, as a RuntimeError."""

    def failing(file: Path) -> None:
        raise RuntimeError(
            f"unable to open file <{file}> in read-only mode: Input/output error (5)"
        )

    monkeypatch.setattr(checkpoint, "load_file", failing)
    with pytest.raises(UserError, match=r"reading .*model\.safetensors: the disk failed"):
        Checkpoint(copy / "checkpoints/step-12").load_model(nn.Linear(1, 1))


@pytest.mark.parametrize("state", ["[]", '{"update": 12}', "nonsense", '{"update": 1e400}'])
def test_a_state_of_another_version_is_refused(copy: Path, state: str) -> None:
    (copy / "metrics.jsonl").write_bytes(
        (copy / "metrics.jsonl").read_bytes().rsplit(b"\n", 2)[0] + b"\n"
    )
    (copy / "checkpoints/step-12/state.json").write_text(state)
    sealed(copy / "checkpoints/step-12")
    with pytest.raises(UserError, match=r"step-12.*state.json was written by another version"):
        train_run(tiny(*SHORT), copy)


def network(width: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Two layers of the same shapes, so that mixing them up cannot show in a shape."""
    torch.manual_seed(width)
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    return model, torch.optim.Adam(model.parameters())


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    (model(torch.arange(6.0).view(2, 3)) ** 2).sum().backward()
    optimizer.step()


def test_optimiser_state_follows_the_names_whatever_the_order(tmp_path: Path) -> None:
    model, optimizer = network()
    step(model, optimizer)
    saved = checkpoint.save(tmp_path, 1, checkpoint.contents(model, optimizer), {})
    saved.verify()
    other, _ = network()
    backwards = torch.optim.Adam(list(other.parameters())[::-1])
    saved.load_model(other)
    saved.load_optimizer(other, backwards)
    for (name, here), there in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(here, there)
        for what in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.equal(optimizer.state[here][what], backwards.state[there][what]), (
                name,
                what,
            )
    step(model, optimizer)
    step(other, backwards)
    for here, there in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(here, there)


def test_tensors_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    model, optimizer = network()
    step(model, optimizer)
    saved = checkpoint.save(tmp_path, 1, checkpoint.contents(model, optimizer), {})
    wider, wider_optimizer = network(4)
    with pytest.raises(UserError, match=r"0.weight is \(3, 3\), the model's \(4, 4\)"):
        saved.load_model(wider)
    with pytest.raises(UserError, match=r"0.bias/exp_avg is \(3,\), the parameter \(4,\)"):
        saved.load_optimizer(wider, wider_optimizer)
    single = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(UserError, match=r"1.bias, 1.weight stand in only one"):
        saved.load_model(single)
    with pytest.raises(UserError, match=r"has state of 1.bias, which the model does not have"):
        saved.load_optimizer(single, optimizer)
    moments = load_file(saved.folder / FILES[1])
    save_file(moments | {"0.weight/exp_avg": torch.tensor(1.0)}, saved.folder / FILES[1])
    with pytest.raises(UserError, match=r"0.weight/exp_avg is \(\), the parameter \(3, 3\)"):
        saved.load_optimizer(model, optimizer)


def test_sha256sum_can_check_a_checkpoint_without_us(short: Path) -> None:
    import subprocess

    folder = short / "checkpoints/step-12"
    done = subprocess.run(
        ["sha256sum", "-c", MANIFEST], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.count("OK") == len(FILES)


@pytest.mark.parametrize("state", [None, "", "{}", '{"before_end": null}', '["metrics_bytes"]'])
def test_a_checkpoint_that_says_nothing_counts_on_no_metrics(
    tmp_path: Path, state: str | None
) -> None:
    """Whoever reads the metrics is not stopped by it: that is for whoever goes on from it."""
    folder = RunFolder(tmp_path)
    assert metrics_bytes(folder.checkpoints) == 0
    step = folder.checkpoints / "step-4"
    step.mkdir(parents=True)
    if state is not None:
        (step / "state.json").write_text(state)
    assert metrics_bytes(folder.checkpoints) == 0
    assert folder.events() == []
