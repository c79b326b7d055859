"""Sizes of tensors of every dtype, beside numpy's."""

import math

import numpy as np
import pytest
import torch

from normscope.measure.passes import euclidean_norm, has_arithmetic, mean_square

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
REAL = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("entries", [60, 80_000])  # at once, and a few at a time
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_is_numpys_of_every_dtype(dtype, entries):
    drawn = 4 * torch.randn(entries, 2, generator=torch.Generator().manual_seed(0))
    x = torch.view_as_complex(drawn).to(dtype) if dtype.is_complex else drawn.abs().to(dtype)
    x = x.reshape(5, -1).T
    wide = x.numpy().astype(np.complex128 if dtype.is_complex else np.float64)
    assert euclidean_norm(x) == pytest.approx(float(np.linalg.norm(wide)), rel=1e-12)
    assert mean_square(x) == pytest.approx(float((np.abs(wide) ** 2).mean()), rel=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16, torch.float8_e4m3fn])
def test_of_nothing_there_is_a_norm_and_no_mean(dtype):
    assert euclidean_norm(torch.zeros(3, 0, dtype=dtype)) == 0
    assert math.isnan(mean_square(torch.zeros(0, dtype=dtype)))


def test_numbers_of_8_bits_and_conjugates_are_measured():
    x = torch.tensor([3.0, -4.0])
    assert euclidean_norm(x.to(torch.float8_e4m3fn)) == 5
    assert euclidean_norm(torch.tensor([3 + 4j]).conj()) == 5


def test_real_numbers_of_16_bits_and_more_have_all_arithmetic():
    assert all(has_arithmetic(torch.zeros(1, dtype=dtype)) for dtype in REAL)
    others = set(DTYPES) - set(REAL) | {torch.float8_e4m3fn, torch.float8_e5m2}
    assert not any(has_arithmetic(torch.zeros(1, dtype=dtype)) for dtype in others)
