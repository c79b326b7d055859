"""Tests of Ray and Slurm are run where they are asked for, not wherever one of them happens to be installed."""

import os

import pytest

only_when_asked = pytest.mark.skipif(
    "NORMSCOPE_TEST_ENGINES" not in os.environ,
    reason="starts the daemons of a cluster and waits for minutes: `make engines` runs it",
)
