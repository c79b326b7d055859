"""Three trainings about a rate: on curves whose best rate is known."""

import math
from pathlib import Path

import pytest

from normscope.errors import UserError
from normscope_studies.engine.pieces import Pieces
from normscope_studies.three_rates import (
    OWN,
    STUDY,
    BegunWith,
    RateSweep,
    ThreeRatesConfig,
    begun,
)


def sweep(best: float, octaves: list[float], curvature: float = 1.0) -> RateSweep:
    """A parabola over the octave with its bottom at `best`."""
    return RateSweep(
        source=OWN,
        group="one",
        octaves=octaves,
        losses=[curvature * (octave - best) ** 2 for octave in octaves],
    )


def starts(of: RateSweep) -> list[BegunWith]:
    return list(begun(of))


def test_every_rate_with_half_and_twice_of_itself_is_begun_with() -> None:
    assert len(starts(sweep(0.0, [-2.0, -1.0, 0.0, 1.0, 2.0]))) == 3
    # Half octaves have two rates between a rate and twice it.
    assert len(starts(sweep(0.0, [-1.0, -0.5, 0.0, 0.5, 1.0]))) == 1
    assert starts(sweep(0.0, [0.0, 0.4, 0.8])) == []


def test_going_on_comes_to_the_best_and_counts_its_trainings() -> None:
    found = starts(sweep(2.0, [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]))
    first = found[0]
    assert first.away == 3
    assert first.lost["best of three"] == pytest.approx(9.0)
    assert first.lost["going on"] == 0.0
    # From -3, -2, -1 on: 0, 1, 2 and 3, by which 2 is seen to be no end.
    assert first.further == 4
    assert [one.further for one in found] == [4, 3, 2, 1, 0]


def test_the_vertex_loses_nothing_where_the_sweep_has_the_rate_it_names() -> None:
    octaves = [-1.0, -0.5, 0.0, 0.5, 1.0]
    (found,) = starts(sweep(0.5 - 1e-9, octaves))
    assert found.lost["best of three"] > 0.2
    assert found.lost["vertex"] == pytest.approx(0.0, abs=1e-6)


def test_a_missing_file_is_told_with_the_setting_that_names_it(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("h,ffnh,numl,lr,bs,ti,loss,smooth loss,N,D\n")
    config = ThreeRatesConfig(ladders=str(table), own=str(tmp_path / "none.json"))
    with pytest.raises(UserError, match=r"none\.json: no such file; .*--set own=FILE"):
        STUDY.run(config, Pieces(tmp_path))


def test_a_rate_between_two_is_judged_on_a_straight_line() -> None:
    found = sweep(0.0, [0.0, 1.0, 2.0])
    assert found.regret(0.5) == pytest.approx(0.5)
    assert math.isclose(found.regret(2.0), 4.0)
