"""Figure 6: what made-up curves are judged to say of a small fixed rate, and a run of the smallest
scale.
"""

from pathlib import Path

import pytest

import in_process
from made_curves import trained_of
from normscope_studies.engine import trainings
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.figure_6 import SCALES, STUDY, _Figure6Config, claims, small_less
from normscope_studies.translation.runs import Trained

CONFIG = _Figure6Config()
NAMES = [
    "a small fixed rate does better than a large one without warm-up",
    "a small fixed rate does worse than warm-up",
    "it is the size of the rate",
]


def made(
    small: float, *, without: float = 5.8, long: float = 3.0, large: float = 6.0, seeds: int = 3
) -> Trained:
    """The small rate's line goes from 8 before its first update to `small` after its last."""
    lasts = dict(zip(CONFIG.arms(), (small, without, long, large, large), strict=True))
    return trained_of(lasts, epoch=CONFIG.epoch_updates, seeds=seeds)


def verdicts(found: Trained) -> list[str]:
    assert [claim.name for claim in claims(CONFIG, found)] == NAMES
    return [claim.verdict for claim in claims(CONFIG, found)]


def test_the_paper_s_picture_is_reproduced_where_it_is_seen() -> None:
    # After 15 of its 27 epochs it is at 8 − 15/27 · 4.2 = 5.67.
    assert verdicts(made(3.8)) == ["reproduced"] * 3


def test_a_loss_is_that_of_the_same_number_of_updates() -> None:
    found = small_less(CONFIG, CONFIG.arms()[2], made(3.8), update=CONFIG.updates)
    assert float(found.mean) == pytest.approx(8 - 15 / 27 * 4.2 - 3.0, abs=0.03)


def test_what_takes_more_updates_is_said_to() -> None:
    """At 5.89 after as many updates as the others, and at 4.2 in the end."""
    found = made(4.2)
    assert verdicts(found) == ["undecided", "reproduced", "reproduced"]
    assert claims(CONFIG, found)[0].conditions == "after 27 epochs; not after 15 epochs"


def test_a_small_rate_that_does_as_well_is_not_worse() -> None:
    assert verdicts(made(2.0, long=5.0))[1] == "contradicted"


def test_a_large_rate_that_learns_is_not_held_back_by_its_size() -> None:
    assert verdicts(made(3.8, large=3.5))[2] == "contradicted"


def test_one_seed_decides_nothing() -> None:
    assert verdicts(made(3.8, seeds=1)) == ["undecided"] * 3


def test_the_small_rate_is_a_tenth_and_is_followed_for_longer() -> None:
    for scale in ("cpu", "paper"):
        config: _Figure6Config = SCALES[scale]
        assert config.small_lr == pytest.approx(config.peak_lr / 10)
        assert config.arms()[0].updates == 27 * config.epoch_updates
        assert {arm.updates for arm in config.arms()[1:]} == {15 * config.epoch_updates}


def test_the_smallest_scale_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    found, page = run_study(STUDY, SCALES["smoke"], Pieces(tmp_path / "figure-6"), command="test")
    assert page.is_file()
    assert [len(one["seeds"][0]["updates"]) for one in found.data["configurations"]] == [
        3,
        2,
        2,
        2,
        2,
    ]
    assert len(found.data["small_less_others_nats"]) == 4
