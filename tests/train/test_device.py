"""Devices by name, and the check that decides whether products leave torch's default route."""

import os

import pytest
import torch

from normscope.errors import UserError
from normscope.train import device as room
from normscope.train.device import FP32_ERROR_BOUND, autocast, available_cores, choose_device, fast_matmul, set_threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _restored():
    matmul, threads = torch.backends.mkldnn.matmul, torch.get_num_threads()
    before = matmul.fp32_precision
    yield
    matmul.fp32_precision = before
    torch.set_num_threads(threads)


def test_products_stay_fp32_after_the_check():
    outcome = fast_matmul(CPU)
    assert outcome.error is not None
    assert outcome.on == (outcome.error <= FP32_ERROR_BOUND)
    a, b = torch.randn(300, 700), torch.randn(700, 200)
    exact = a.double() @ b.double()
    assert ((a @ b).double() - exact).norm() / exact.norm() < FP32_ERROR_BOUND


def test_a_route_that_rounds_its_factors_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    """bfloat16 factors stand in for a CPU on which the route computes in bfloat16."""
    monkeypatch.setattr(room, "_PRODUCTS", (lambda a, b: (a.bfloat16() @ b.bfloat16()).float(),))
    before = torch.backends.mkldnn.matmul.fp32_precision
    outcome = fast_matmul(CPU)
    assert not outcome.on
    assert outcome.error > 100 * FP32_ERROR_BOUND
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_factors_of_tf32_are_over_the_bound(monkeypatch: pytest.MonkeyPatch):
    def rounded(x: torch.Tensor) -> torch.Tensor:  # to 10 bits after the point, to nearest
        return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    monkeypatch.setattr(room, "_PRODUCTS", (lambda a, b: rounded(a) @ rounded(b),))
    assert not fast_matmul(CPU).on


def test_the_check_leaves_the_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    fast_matmul(CPU)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


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
