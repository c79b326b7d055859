"""The device that these tests are about; without it they skip."""

import os
from collections.abc import Iterator

import pytest
import torch

from normscope.train.device import prepare_cuda

ON = os.environ.get("NORMSCOPE_CUDA_TESTS_ON", "cuda")
"""cpu goes through the tests' own code where there is no device; they then compare the CPU with
itself.
"""

# cuBLAS reads it once, at its first product, whichever test that is in.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture
def device() -> Iterator[torch.device]:
    """Skips the test where there is no such device. What a test sets of how CUDA computes is
    undone.
    """
    found = torch.device(ON, 0) if ON == "cuda" else torch.device(ON)
    if found.type == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and torch sees none")
    yield found
    if found.type == "cuda":
        prepare_cuda("fp32", deterministic=False)
