"""Numbers as people read them, each against what one would write by hand."""

import math

import pytest

from normscope.report import words as numbers


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (None, 4, "–"),
        (math.nan, 4, "non-finite"),
        (-math.inf, 4, "non-finite"),
        (0.0, 4, "0"),
        (1234567, 4, "1,234,567"),
        (0.123456, 4, "0.1235"),
        (12.3456, 3, "12.3"),
        (0.99996, 4, "1.000"),
        (99999.6, 3, "100,000"),
        (1.2345e-5, 3, "1.23e-5"),
        (4.2e9, 2, "4.2e9"),
        (-0.5, 2, "-0.50"),
    ],
)
def test_significant_digits(value, digits, expected):
    assert numbers.significant(value, digits) == expected


@pytest.mark.parametrize(
    ("value", "decimals", "expected"),
    [
        (-0.0004, 3, "0.000"),
        (-0.5, 3, "−0.500"),
        (1234.5, 1, "1,234.5"),
        (None, 3, "–"),
        (math.nan, 3, "non-finite"),
    ],
)
def test_decimals(value, decimals, expected):
    assert numbers.number(value, decimals) == expected


def test_intervals_and_spans():
    assert numbers.interval(0.507, 0.0081) == "0.507 ± 0.008"
    assert numbers.interval(0.507, None) == numbers.interval(0.507, math.nan) == "0.507"
    assert numbers.span([0.25, -1e-4, -0.5]) == "−0.500 to 0.250"
    assert numbers.span([1.26, 3.4], 1) == "1.3 to 3.4"


def test_percentages():
    assert numbers.percentage(0.9143) == "91.4 %"
    assert numbers.percentage(None) == "–"
    assert [numbers.probability(p) for p in (0, 0.004, 0.5, 0.996, 1)] == [
        "0 %", "under 1 %", "50 %", "over 99 %", "100 %",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(1e-3, "1e-3"), (4.2e-4, "4.2e-4"), (0.05, "0.05"), (0.0, "0"), (None, "–")],
)
def test_learning_rates(rate, expected):
    assert numbers.learning_rate(rate) == expected


def test_words():
    assert [numbers.counted(n, "block") for n in (0, 1, 1200)] == [
        "0 blocks",
        "1 block",
        "1,200 blocks",
    ]
    assert [numbers.joined(p) for p in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
