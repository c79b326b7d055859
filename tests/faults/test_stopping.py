"""Signals at any operation of a command, one or two in a row: one line, nothing half written, the
same bits after it.

These are samples; `make faults` takes every operation. Signals before anything is imported:
`tests/test_signals.py`.
"""

import pytest

from faults.conftest import Attack

SAMPLES = {"documents": 340, "training": 1000}


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("work", SAMPLES)
def test_a_signal_ends_a_command_in_one_line_and_it_goes_on(attack: Attack, work: str) -> None:
    wrong = [
        verdict
        for verdict in attack("stops", work, every=SAMPLES[work], offset=7)
        if verdict["problem"]
    ]
    assert not wrong
