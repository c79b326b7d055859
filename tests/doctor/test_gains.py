"""Gains of all norms that start at 0, which closes whole branches as well."""

import pytest

from doctor.bugs_starts import gains
from doctor.test_lint_values import RULES, patient


@pytest.mark.parametrize("first", [False, True])
def test_zeros_are_an_error_only_where_nothing_is_added_to_them(first):
    (found,) = RULES["gain-start"].check(patient(gains(0.0, first=first)()))
    assert found.severity == "warning"
    assert "the gains of 9 of 9 norms start at 0" in found.message
    assert list(RULES["gain-start"].check(patient(gains(0.0, added=1.0, first=first)()))) == []
