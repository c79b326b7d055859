"""A power cut at any moment, after which only what was synchronised is sure to be there.

These are samples; `make faults` takes every operation.
"""

import pytest

from faults.conftest import Attack

SAMPLES = {"documents": 24, "training": 100}


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("work", SAMPLES)
def test_the_same_command_goes_on_after_a_power_cut(attack: Attack, work: str) -> None:
    wrong = [
        verdict
        for verdict in attack("power-cut", work, every=SAMPLES[work], offset=1)
        if verdict["problem"]
    ]
    assert not wrong
