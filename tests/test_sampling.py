"""What `make test` leaves out of what `make test-all` runs: cases, never a whole sampled test."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def collected(*options: str) -> list[str]:
    words = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-q", "train/replicas/test_bits.py", *options]
    done = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_sample_has_every_test_and_the_whole_every_case():
    sample, whole = collected(), collected("--whole")
    assert set(sample) < set(whole)
    assert {case.partition("[")[0] for case in sample} == {case.partition("[")[0] for case in whole}
    assert sample == collected()
