"""What every test room shares: where the shared corpora and fixtures are, and the plain refusal to run without them."""

import os
from pathlib import Path

import pytest
import torch

# Tiny tensors on several threads wait for each other more than they compute, and the tests run side by side anyway.
torch.set_num_threads(1)

SHARED = Path(os.environ.get("NORMSCOPE_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared corpora and fixtures; skips the test where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the shared corpora and fixtures: no folder {SHARED} (set NORMSCOPE_SHARED)")
    return SHARED
