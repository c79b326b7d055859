"""What tests of several engines hold their runs against."""

import pytest

from engines.grids import bits, grid_of_24, trained
from normscope.engines.local import OnThisMachine


@pytest.fixture(scope="session")
def local_24(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, bytes]]:
    """Weights and metrics of a grid of 24 that this machine has trained."""
    here = grid_of_24(tmp_path_factory.mktemp("local"))
    assert trained(here, OnThisMachine(2)) == ["finished"] * 24
    return bits(here)
