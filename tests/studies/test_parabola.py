"""The bottom of a parabola, beside a fit of one."""

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from normscope_studies.advice.ladder import bottom

NUMBERS = st.floats(-5, 5)


@given(st.floats(-3, 3), st.floats(0.1, 3), st.floats(0.1, 3), NUMBERS, NUMBERS, NUMBERS)
def test_it_is_where_a_fitted_parabola_is_lowest(start, first, second, left, here, right):
    x, y = [start, start + first, start + first + second], [left, here, right]
    curvature, slope, _ = np.polyfit(x, y, 2)
    assume(curvature > 0.05)
    assert bottom(x, y) == pytest.approx(-slope / (2 * curvature), rel=1e-6, abs=1e-6)


def test_without_a_bottom_it_is_the_middle():
    assert bottom([0.0, 1.0, 3.0], [1.0, 2.0, 1.0]) == 1.0
    assert bottom([0.0, 1.0, 2.0], [3.0, 3.0, 3.0]) == 1.0
