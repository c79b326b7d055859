"""Results as JSON has them: records, arrays and numbers that JSON lacks."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

from normscope.report.plain import plain_values


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    value: float
    colour: Colour


@dataclass(frozen=True, slots=True)
class Outer:
    one: Inner
    several: tuple[Inner, ...]
    curve: Any
    by_name: Any
    count: Any = 3


class Lazy(Mapping[str, float]):
    """A mapping that is no dictionary."""

    def __getitem__(self, name: str) -> float:
        return {"a": 1.5, "b": math.inf}[name]

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __len__(self) -> int:
        return 2


def test_a_record_is_what_json_reads_back_in_the_order_of_its_fields() -> None:
    given = Outer(
        one=Inner(0.1 + 0.2, Colour.RED),
        several=(Inner(-math.inf, Colour.RED), Inner(math.nan, Colour.RED)),
        curve=np.array([[1.0, math.nan], [1e-300, 2.0]]),
        by_name=Lazy(),
        count=np.int64(7),
    )
    made = plain_values(given)
    assert made == {
        "one": {"value": 0.30000000000000004, "colour": "red"},
        "several": [{"value": None, "colour": "red"}, {"value": None, "colour": "red"}],
        "curve": [[1.0, None], [1e-300, 2.0]],
        "by_name": {"a": 1.5, "b": None},
        "count": 7,
    }
    assert list(made) == ["one", "several", "curve", "by_name", "count"]
    text = json.dumps(made, allow_nan=False)
    assert json.dumps(json.loads(text)) == text
    assert [type(made[name]) for name in ("count", "one")] == [int, dict]


def test_fields_are_left_out_by_name_and_inner_ones_of_that_name_stay() -> None:
    given = Outer(Inner(1.0, Colour.RED), (), None, {"several": 1, "curve": 2})
    left = plain_values(given, without=("several", "curve"))
    assert left == {
        "one": {"value": 1.0, "colour": "red"},
        "by_name": {"several": 1, "curve": 2},
        "count": 3,
    }


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(Exception, match="JSON holds no object"):
        plain_values({"x": object()})
