"""Products in two libraries' parts, and the check that decides whether one of them may have any."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from normscope.model import linear as room
from normscope.model.linear import (
    FP32_ERROR_BOUND,
    Linear,
    add_product,
    fast_matmul,
    round_rows,
    rows_product,
)
from normscope.tasks.loss import smoothed_cross_entropy

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch):
    """A processor that is not Intel's, whatever this one is; a decision that ends with the test."""
    monkeypatch.setattr(room, "made_by_intel", lambda: False)
    monkeypatch.setattr(room._Process, "onednn", False)
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    yield
    assert matmul.fp32_precision == before


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that oneDNN is given; MKL stands in for it, so that any processor can run
    this.
    """
    rows: list[int] = []
    multiply = torch.mm

    @contextmanager
    def through():
        monkeypatch.setattr(
            torch, "mm", lambda a, b, out: rows.append(len(a)) or multiply(a, b, out=out)
        )
        yield
        monkeypatch.setattr(torch, "mm", multiply)

    monkeypatch.setattr(room, "through_onednn", through)
    monkeypatch.setattr(room, "LEAST_MULTIPLICATIONS", 1)
    monkeypatch.setattr(room._Process, "onednn", True)
    return rows


def test_the_check_decides_whether_onednn_gets_any():
    outcome = fast_matmul(CPU)
    assert outcome.error is not None
    assert outcome.on == room._Process.onednn == (outcome.error <= FP32_ERROR_BOUND)


def test_large_products_of_rows_stay_float32_after_the_check():
    fast_matmul(CPU)
    a, b = torch.randn(777, 512), torch.randn(512, 256)
    for product, exact in (
        (rows_product(a, b), a.double() @ b.double()),
        (_summed(a, a), a.double().T @ a.double()),
    ):
        assert (product.double() - exact).norm() / exact.norm() < FP32_ERROR_BOUND


def test_intels_own_processors_leave_products_to_mkl(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room._Process, "onednn", True)
    monkeypatch.setattr(room, "made_by_intel", lambda: True)
    outcome = fast_matmul(CPU)
    assert not outcome.on
    assert outcome.error is None
    assert not room._Process.onednn


def test_a_route_that_rounds_its_factors_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    """bfloat16 factors stand in for a CPU on which the route computes in bfloat16."""
    monkeypatch.setattr(room, "_PRODUCTS", (lambda a, b: (a.bfloat16() @ b.bfloat16()).float(),))
    outcome = fast_matmul(CPU)
    assert not outcome.on
    assert not room._Process.onednn
    assert outcome.error > 100 * FP32_ERROR_BOUND


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


def test_four_thousand_numbers_of_rows_become_few():
    """16 from one power of two to the next, so 16 from 16 to 31 and as many in each of seven
    octaves above.
    """
    found = {round_rows(rows) for rows in range(16, 4096)}
    assert len(found) == 8 * 16
    assert all(0 <= rows - round_rows(rows) < rows / 16 for rows in range(1, 4097))
    assert [round_rows(rows) for rows in (1, 31, 33, 361, 3700)] == [1, 31, 32, 352, 3584]


@pytest.mark.parametrize("rows", [5, 64, 77, 361])
def test_a_linear_layer_in_parts_is_the_layer_and_its_gradients(given: list[int], rows: int):
    torch.manual_seed(0)
    ours = Linear(24, 40)
    theirs = nn.Linear(24, 40).double()
    theirs.load_state_dict({name: value.double() for name, value in ours.state_dict().items()})
    x = torch.randn(rows, 24, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    of_ours = ours(x), *torch.autograd.grad((ours(x) ** 3).sum(), (x, *ours.parameters()))
    of_theirs = (
        theirs(exact),
        *torch.autograd.grad((theirs(exact) ** 3).sum(), (exact, *theirs.parameters())),
    )
    for one, other in zip(of_ours, of_theirs, strict=True):
        assert (
            one.double() - other
        ).norm() / other.norm() < 2**-20  # roundings of float32: 2^-24 each
    assert set(given) == {round_rows(rows)}


def test_a_layer_without_parts_to_give_is_as_ever(given: list[int]):
    layer = Linear(8, 8).double()
    x = torch.randn(40, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    Linear(8, 8)(torch.randn(2, 20, 8))
    with torch.autocast("cpu", torch.bfloat16):
        assert Linear(8, 8)(torch.randn(40, 8)).dtype == torch.bfloat16
    assert not given


def test_small_products_are_not_given_away(given: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "LEAST_MULTIPLICATIONS", 64 * 8 * 8)
    Linear(8, 8)(torch.randn(63, 8))
    assert not given
    Linear(8, 8)(torch.randn(65, 8))
    assert given == [64]


def test_the_loss_in_parts_is_the_loss_and_its_gradients(given: list[int]):
    torch.manual_seed(0)
    hidden, weight = (
        torch.randn(109, 16, requires_grad=True),
        torch.randn(50, 16, requires_grad=True),
    )
    target = torch.randint(50, (109,))
    loss, _ = smoothed_cross_entropy(hidden, weight, target, 0.0, chunk_tokens=64)
    exact = nn.functional.cross_entropy(
        hidden.double() @ weight.double().T, target, reduction="sum"
    )
    for one, other in zip(
        (loss, *torch.autograd.grad(loss, (hidden, weight))),
        (exact, *torch.autograd.grad(exact, (hidden, weight))),
        strict=True,
    ):
        assert (one.double() - other).norm() / other.norm() < 2**-18
    assert given == [64, 64, 44, 44]


def _summed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[1], b.shape[1])
    add_product(total, a, b)
    return total
