"""Draws that stay the same for ever: golden values, and the frequencies they promise."""

import math
from collections import Counter

import pytest

from normscope.data.batches import StableDraw


def test_a_key_gives_the_same_draws_under_every_version() -> None:
    draw = StableDraw("pairs 1 0 7")
    assert [draw.below(1000) for _ in range(8)] == GOLDEN
    assert [StableDraw("pairs 1 0 7").below(1000) for _ in range(2)] == GOLDEN[:1] * 2
    assert len({StableDraw(f"pairs 1 0 {i}").below(10**9) for i in range(200)}) == 200


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.8])
def test_chances_come_true_as_often_as_they_should(probability: float) -> None:
    draw, tries = StableDraw("chance"), 20_000
    happened = sum(draw.chance(probability) for _ in range(tries))
    assert abs(happened - tries * probability) < 5 * math.sqrt(
        tries * probability * (1 - probability)
    )
    assert not any(draw.chance(0.0) for _ in range(100))
    assert all(draw.chance(1.0) for _ in range(100))


def test_each_of_a_range_and_of_a_list_is_as_likely() -> None:
    draw, tries = StableDraw("below"), 14_000
    for drawn in (
        Counter(draw.below(7) for _ in range(tries)),
        Counter("abcdefg".index(draw.one_of("abcdefg")) for _ in range(tries)),
    ):
        assert sorted(drawn) == list(range(7))
        bound = 5 * math.sqrt(tries * (1 / 7) * (6 / 7))
        assert all(abs(count - tries / 7) < bound for count in drawn.values())


GOLDEN = [774, 907, 46, 934, 857, 876, 413, 148]
