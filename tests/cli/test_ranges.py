"""Lists and grids of numbers on a command line, beside numpy's."""

import numpy as np
import pytest

from normscope.cli.compare import numbers
from normscope.errors import UserError


def test_a_list_is_what_it_says():
    assert numbers("1e-3, 2e-3,", float, "peak-lr") == [1e-3, 2e-3]
    assert numbers("0,200", int, "warmup-updates") == [0, 200]
    assert numbers("", float, "peak-lr") == []


@pytest.mark.parametrize(
    ("text", "ends"), [("3e-4:3e-1:7", (3e-4, 3e-1)), ("1.2345e-5:7:23", (1.2345e-5, 7.0))]
)
def test_a_grid_has_equal_steps_in_the_logarithm_between_its_ends(text, ends):
    found = numbers(text, float, "peak-lr")
    assert (found[0], found[-1]) == ends
    # Three significant digits are within half a unit of the third.
    assert found == pytest.approx(np.geomspace(*ends, int(text.split(":")[2])), rel=0.005)
    assert all(
        len(f"{value:e}".split("e")[0].rstrip("0").replace(".", "")) <= 3 for value in found[1:-1]
    )


def test_the_papers_grid_is_written_as_it_is_trained():
    assert numbers("3e-4:3e-1:7", float, "peak-lr") == [
        3e-4,
        9.49e-4,
        3e-3,
        9.49e-3,
        0.03,
        0.0949,
        0.3,
    ]


def test_a_grid_of_updates_is_of_whole_numbers_and_stands_beside_values():
    assert numbers("0,50:800:5", int, "warmup-updates") == [0, 50, 100, 200, 400, 800]
    assert numbers("1:10:3,20", int, "warmup-updates") == [1, 3, 10, 20]


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (
            "fast",
            float,
            "takes comma-separated values, and grids start:stop:count .* such as 3e-4:3e-1:7; got "
            "'fast'",
        ),
        (
            "3e-4:3e-1",
            float,
            "has 2 parts, and a grid has three: where it starts, where it stops, and how many",
        ),
        ("1e-3:1e-2:3:4", float, "has 4 parts"),
        ("1e-1:1e-3:3", float, "must rise from a number above 0"),
        ("1e-3:inf:3", float, "to a finite one"),
        ("nan:1:3", float, "must rise"),
        ("-1:1:3", float, "must rise"),
        ("0:800:5", int, "write 0 beside it, as in 0,50:800:5"),
        ("1e-3:1e-2:1", float, "asks for 1 values, and a grid has from 2 to 1000"),
        ("1e-3:1e-2:100000", float, "from 2 to 1000"),
        ("1e-3:1e-2:few", float, "invalid literal for int"),
        (
            "1:4:9",
            int,
            "so fine that two of its values are the same when rounded to whole numbers; ask for "
            "fewer",
        ),
        ("1e-3:1.01e-3:30", float, "the same when rounded to 3 significant digits"),
        ("1.5:9:3", int, "such as 50:800:5; got '1.5:9:3'"),
    ],
)
def test_what_is_no_grid_is_refused_with_what_is(text, kind, says):
    with pytest.raises(UserError, match=f"--peak-lr .*{says}"):
        numbers(text, kind, "peak-lr")


def test_three_about_a_rate_are_half_of_it_it_and_twice_it():
    assert numbers("around:1e-3", float, "peak-lr") == [5e-4, 1e-3, 2e-3]
    assert numbers("around:3e-4,0.1", float, "peak-lr") == [1.5e-4, 3e-4, 6e-4, 0.1]


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("around:", float, "could not convert string to float"),
        ("around:0", float, "a finite rate above 0 behind the colon"),
        ("around:inf", float, "a finite rate above 0 behind the colon"),
        ("around:200", int, "three about one are of rates alone"),
    ],
)
def test_three_about_what_is_no_rate_are_refused(text, kind, says):
    with pytest.raises(UserError, match=says):
        numbers(text, kind, "peak-lr")
