"""What `make test` leaves out of what `make test-all` runs: cases, never a whole sampled test."""

import os
import sys
from pathlib import Path

import pytest

import forked
from normscope.placement import registered
from tiny import finish

HERE = Path(__file__).parent


def collected(*words: str) -> list[str]:
    code, out, err = finish(forked.call(collect, words))
    assert code == 0, out + err
    return [line for line in out.splitlines() if "::" in line]


def collect(words: tuple[str, ...]) -> None:
    """As `python -m pytest`, which finds the package imported already."""
    os.chdir(HERE)
    quietly = ["-n", "0", "-p", "no:cacheprovider", "--collect-only", "-q"]
    quietly += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main([*quietly, *words]))


def test_a_sample_has_every_test_and_the_whole_every_case():
    sample, whole = (
        collected("train/test_checkpoint.py", *options) for options in ((), ("--whole",))
    )
    assert set(sample) < set(whole)
    assert {case.partition("[")[0] for case in sample} == {case.partition("[")[0] for case in whole}
    assert sample == collected("train/test_checkpoint.py")


@pytest.mark.thorough
def test_of_the_registry_each_test_takes_a_sample_and_all_of_them_every_placement():
    sample, whole = (collected("model", "placement", *options) for options in ((), ("--whole",)))
    assert set(sample) < set(whole)
    over_all = [case for case in whole if case.endswith("[zaya]")]
    assert over_all
    tests = {case.partition("[")[0] for case in over_all}
    per_test = {test: [case for case in sample if case.startswith(f"{test}[")] for test in tests}
    assert all(0 < len(cases) < len(registered()) / 6 for cases in per_test.values())
    # Other tests of this process may have registered placements of their own.
    ours = {
        name
        for name, placement in registered().items()
        if placement.__module__.startswith("normscope.")
    }
    assert {case.partition("[")[2][:-1] for cases in per_test.values() for case in cases} >= ours
