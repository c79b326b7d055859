"""Trainings on a CUDA device: bits that come again, and losses that are the CPU's."""

import os
import signal
from pathlib import Path

import pytest
import torch

from normscope.runs import run
from normscope.runs.config import load
from normscope.runs.trained import load_run
from normscope.train import Interrupted, RunFolder
from tiny import SETTINGS, SHORT, result

# Python's, of processes that fork where CUDA has threads: they prepare batches, and never touch the
# device.
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

FIXED = (*SHORT, "train.deterministic=true")


def trained(
    folder: Path, device: torch.device, *settings: str, stop_after: int | None = None
) -> Path:
    """A tiny run on the device; stop_after: interrupt it after that update."""
    config = load(None, [*SETTINGS, *settings, f'train.device="{device}"'])

    def interrupt(event: dict[str, object]) -> None:
        if event["event"] == "update" and event["update"] == stop_after:
            os.kill(os.getpid(), signal.SIGINT)

    run.train_run(config, folder, listeners=[interrupt])
    return folder


def losses(folder: Path) -> list[float]:
    return [
        event["loss_nats"] for event in RunFolder(folder).events() if event["event"] == "update"
    ]


@pytest.mark.parametrize("settings", [(), ('optimizer.name="muon"',), ('train.precision="fp32"',)])
def test_a_stopped_run_ends_with_the_bytes_of_one_that_was_not(
    tmp_path: Path, device: torch.device, settings: tuple[str, ...]
) -> None:
    whole = trained(tmp_path / "whole", device, *FIXED, *settings)
    with pytest.raises(Interrupted):
        trained(tmp_path / "stopped", device, *FIXED, *settings, stop_after=6)
    assert result(trained(tmp_path / "stopped", device, *FIXED, *settings), 12) == result(whole, 12)


def test_losses_are_the_cpus(tmp_path: Path, device: torch.device) -> None:
    """Without dropout, whose masks each device draws for itself. In float32, products differ by
    rounding alone; in updates that each go on from the one before, by some hundred times that."""
    same = (*SHORT, "model.dropout=0.0")
    cpu = losses(trained(tmp_path / "cpu", torch.device("cpu"), *same, 'train.precision="fp32"'))
    found = losses(trained(tmp_path / "fp32", device, *same, 'train.precision="fp32"'))
    assert found == pytest.approx(cpu, rel=1e-4)
    # Factors of 8 bits.
    assert losses(
        trained(tmp_path / "bf16", device, *same, 'train.precision="bf16"')
    ) == pytest.approx(cpu, rel=0.02)
    if device.type == "cuda":
        # Factors of 11 bits.
        tf32 = losses(trained(tmp_path / "tf32", device, *same, 'train.precision="tf32"'))
        assert tf32 == pytest.approx(cpu, rel=5e-3)


def test_auto_is_the_device_in_bf16_and_its_run_opens_on_a_cpu(
    tmp_path: Path, device: torch.device
) -> None:
    settings = [one for one in SETTINGS if "train.device" not in one]
    run.train_run(load(None, [*settings, *SHORT]), tmp_path)
    kept = RunFolder(tmp_path).config_table()["train"]
    assert kept["precision"] == ("bf16" if torch.cuda.is_available() else "fp32")
    assert (kept["device"] == "cuda:0") == torch.cuda.is_available()
    assert {p.device.type for p in load_run(tmp_path, device="cpu").model.parameters()} == {"cpu"}
    assert {p.device.type for p in load_run(tmp_path, device=str(device)).model.parameters()} == {
        device.type
    }
