"""Devices, precisions, cores and threads, by name and by number."""

import os

import pytest
import torch

from normscope.errors import UserError
from normscope.train.device import autocast, available_cores, choose_device, set_threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _restored():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_devices_by_name():
    assert choose_device("cpu") == CPU
    assert choose_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu", "meta", "cuda:99"):
        with pytest.raises(UserError):
            choose_device(name)


def test_precisions_by_name():
    with autocast(CPU, "bf16"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with autocast(CPU, "fp32"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with pytest.raises(UserError, match="fp32 or bf16"):
        autocast(CPU, "fp8")


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert available_cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_threads():
    set_threads(1)
    assert torch.get_num_threads() == 1
    with pytest.raises(UserError):
        set_threads(0)
