"""Devices, precisions, cores and threads, by name and by number."""

import ctypes
import os
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from normscope.errors import UserError
from normscope.train import device
from normscope.train.device import (
    autocast,
    available_cores,
    changes_of_machine,
    choose_device,
    describe,
    give_back_freed_memory,
    keep_freed_memory,
    prepare_cuda,
    refuse_precision,
    seed_data,
    seed_micro_batch,
    seed_weights,
)

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


def test_tf32_is_of_cuda_alone():
    refuse_precision(torch.device("cuda"), "tf32")
    refuse_precision(CPU, "bf16")
    with pytest.raises(UserError, match="this is cpu; choose fp32 or bf16"):
        refuse_precision(CPU, "tf32")


def test_what_cuda_computes_with_is_set_anew_each_time(monkeypatch: pytest.MonkeyPatch):
    """Neither what a run before set, nor what its user did, decides how this one computes."""
    products = torch.backends.cuda.matmul
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    try:
        prepare_cuda("tf32", deterministic=True)
        assert products.allow_tf32
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
        prepare_cuda("bf16", deterministic=True)
        assert not products.allow_tf32
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
        prepare_cuda("fp32", deterministic=False)
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        prepare_cuda("fp32", deterministic=False)
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert available_cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


@pytest.mark.parametrize(
    ("said", "threads"),
    [
        (None, 8),
        ("", 8),
        ("3", 3),
        (" 3 ", 3),
        ("1", 1),
        ("4,2", 4),
        ("8", 8),
        ("64", 8),
        ("0", 8),
        ("-2", 8),
        ("2.5", 8),
        ("many", 8),
        ("²", 8),
        ("9" * 5000, 8),
    ],
)
def test_threads_are_cores_and_no_more_than_openmp_is_allowed(
    said: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert device.allowed_threads() == threads


def test_other_instructions_of_the_same_processor_are_a_change_of_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {
        "device": torch.device("cpu"),
        "seed": 1,
        "data_fingerprint": "",
        "fast_matmul": False,
    }
    before = describe(**asked)
    assert changes_of_machine(before, describe(**asked)) == []
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "SIMPLE")
    now = describe(**asked)
    assert changes_of_machine(before, now) == [f"instructions: {before['instructions']} -> SIMPLE"]
    del before["instructions"]  # of an earlier version
    assert changes_of_machine(before, now) == []


def test_what_is_drawn_depends_on_seed_number_and_purpose_alone() -> None:
    """A draw of each generator for all of them: the same again after others, and no two are
    alike.
    """

    def drawn(seed: Callable[[], None]) -> tuple[float, ...]:
        seed()
        first = (torch.rand(1, dtype=torch.float64).item(),)
        # Code of a user's may ask each of them; weights and dropout are torch's.
        return (*first, np.random.rand(), random.random()) if seed in of_data else first

    pairs = [(seed, number) for seed in (1, 2) for number in (1, 2, 2**40)]
    of_data = [lambda at=at: seed_data(*at) for at in pairs]
    ways = [*of_data, *(lambda at=at: seed_micro_batch(*at) for at in pairs)]
    ways += [lambda seed=seed: seed_weights(seed) for seed in (1, 2)]
    found = [drawn(way) for way in ways]
    assert [drawn(way) for way in reversed(ways)] == found[::-1]
    alone = [number for draws in found for number in draws]
    assert len(set(alone)) == len(alone)


@pytest.mark.parametrize(
    ("settle", "size"), [(keep_freed_memory, 2**31 - 1), (give_back_freed_memory, 2**20)]
)
@pytest.mark.parametrize("refused", [None, -1, -3])
def test_freed_memory_is_kept_or_given_back_by_two_settings_of_the_c_library(
    monkeypatch: pytest.MonkeyPatch, refused: int | None, settle: Callable[[], bool], size: int
) -> None:
    """M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>; kept: the largest number of an int."""
    asked: dict[int, int] = {}

    def mallopt(setting: int, value: int) -> int:
        asked[setting] = value
        return int(setting != refused)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert settle() == (refused is None)
    assert asked.items() <= {-1: size, -3: size}.items()
    assert len(asked) == 2 or refused is not None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not settle()
