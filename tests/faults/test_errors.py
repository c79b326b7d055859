"""A disk that fails at any operation: one line and exit code 2 or no harm, and the same command
ends as undisturbed.

These are samples; `make faults` takes every operation and every error.
"""

import pytest

from faults.conftest import Attack

SAMPLES = {"documents": 240, "translate": 24, "training": 600}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("work", SAMPLES)
def test_a_failing_operation_is_one_line_and_loses_nothing(attack: Attack, work: str) -> None:
    wrong = [
        verdict
        for verdict in attack("errors", work, every=SAMPLES[work], offset=1)
        if verdict["problem"]
    ]
    assert not wrong
