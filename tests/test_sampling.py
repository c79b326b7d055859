"""What `make test` leaves out of what `make test-all` runs: cases, never a whole sampled test."""

import os
import sys
from pathlib import Path

import pytest

import forked
from tiny import finish

HERE = Path(__file__).parent


def collected(*options: str) -> list[str]:
    code, out, err = finish(forked.call(collect, options))
    assert code == 0, out + err
    return [line for line in out.splitlines() if "::" in line]


def collect(options: tuple[str, ...]) -> None:
    """As `python -m pytest`, which finds the package imported already."""
    os.chdir(HERE)
    quietly = ["-n", "0", "-p", "no:cacheprovider", "--collect-only", "-q"]
    quietly += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main([*quietly, "train/replicas/test_bits.py", *options]))


def test_a_sample_has_every_test_and_the_whole_every_case():
    sample, whole = collected(), collected("--whole")
    assert set(sample) < set(whole)
    assert {case.partition("[")[0] for case in sample} == {case.partition("[")[0] for case in whole}
    assert sample == collected()
