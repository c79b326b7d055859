"""The runs that figures 2, 4 and 6 share: their schedules, what identifies them, and what is
trained how often.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import in_process
from normscope.compare.grid import Cell
from normscope.compare.state import CellState
from normscope.errors import UserError
from normscope.optim import ScheduleConfig, factor
from normscope.optim.schedules import summed_factor
from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.tasks.translation import TranslationRunConfig
from normscope.train import NonFinite
from normscope_studies.engine import trainings
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.trainings import train_all
from normscope_studies.figure_6 import SCALES as FIGURE_6, _Figure6Config
from normscope_studies.translation.arms import (
    TranslationArm,
    controlled,
    coupled,
    of_equal_sum,
    peak_of_equal_sum,
)
from normscope_studies.translation.config import RunsConfig
from normscope_studies.translation.figure_2 import SCALES as FIGURE_2
from normscope_studies.translation.figure_4 import SCALES as FIGURE_4
from normscope_studies.translation.page import scaling
from normscope_studies.translation.runs import TranslationCurve, cells_of, curve_of, folder_of

SMALL: _Figure6Config = FIGURE_6["smoke"]
FIXED, _, LONG, *_ = SMALL.arms()
ARMS = (FIXED, LONG)


def summed(schedule: ScheduleConfig, updates: int) -> float:
    return summed_factor(schedule, updates=updates, horizon_updates=updates)


def test_the_paper_s_schedules_sum_up_to_what_is_known_of_them() -> None:
    """By Euler and Maclaurin: Σ 1/√u to N is 2√N + ζ(1/2) + 1/(2√N); from T on the integral and
    half of both ends.
    """
    updates, warmup = 16_500, 4_000
    zeta = -1.4603545088095868
    without = 2 * math.sqrt(updates) + zeta + 1 / (2 * math.sqrt(updates))
    tail = (
        2 * (math.sqrt(updates) - math.sqrt(warmup))
        + (1 / math.sqrt(updates) + 1 / math.sqrt(warmup)) / 2
    )
    with_it = (warmup - 1) / 2 + math.sqrt(warmup) * tail
    assert summed(coupled(1), updates) == pytest.approx(without, rel=1e-6)
    assert summed(coupled(warmup), updates) == pytest.approx(with_it, rel=1e-6)
    assert with_it / without == pytest.approx(40, rel=0.01)


def test_a_decay_that_begins_where_the_warm_up_ends_is_the_coupled_one() -> None:
    apart = ScheduleConfig(decay="inverse-sqrt", warmup_updates=7, decay_from_updates=7)
    one = controlled(7, 7)
    assert one == coupled(7)
    assert [factor(apart, u, horizon_updates=30) for u in range(1, 31)] == [
        factor(one, u, horizon_updates=30) for u in range(1, 31)
    ]


def test_the_arms_of_equal_sum_have_it() -> None:
    for scale in ("cpu", "paper"):
        config = FIGURE_2[scale]
        group = config.groups("adam")[0]
        assert group.without_equal_sum.peak_lr == group.long.peak_lr
        assert group.without_equal_sum.schedule.warmup_updates == 0
        assert group.without_equal_sum.summed_lr == pytest.approx(group.long.summed_lr, rel=2e-3)
        assert group.long_equal_sum.schedule == group.long.schedule
        assert group.long_equal_sum.summed_lr == pytest.approx(group.without.summed_lr, rel=1e-5)


def test_the_start_of_equal_sum_is_the_nearest_one() -> None:
    wanted, updates = summed(coupled(40), 200), 200
    found = of_equal_sum(coupled(40), updates).decay_from_updates
    nearest = min(
        range(1, updates + 1), key=lambda at: abs(summed(controlled(0, at), updates) - wanted)
    )
    assert found == nearest
    with pytest.raises(ValueError, match="no decay without warm-up"):
        of_equal_sum(coupled(100_000), 200)
    assert peak_of_equal_sum(controlled(0, 200), coupled(40), 2.0, 200) == pytest.approx(
        2 * wanted / 200, rel=1e-5
    )


def test_the_warm_ups_take_the_paper_s_part_of_a_run() -> None:
    config = FIGURE_2["cpu"]
    assert config.long_warmup_updates / config.updates == pytest.approx(4000 / 16_500, rel=0.01)
    assert config.short_warmup_updates / config.updates == pytest.approx(500 / 16_500, rel=0.01)
    assert "0.243 and 0.030 of a run, there 0.242 and 0.030" in scaling(config)
    assert scaling(FIGURE_2["paper"]).startswith("none")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("scale", ["smoke", "cpu", "multi30k", "paper"])
def test_figures_share_what_they_have_in_common(scale: str, tmp_path: Path) -> None:
    scales = [of[scale] for of in (FIGURE_2, FIGURE_4, FIGURE_6)]
    configs = [replace(one, corpus="toy", en_de_corpus="toy") for one in scales]
    folders = {
        folder_of(config, Pieces(tmp_path / f"figure-{n}")) for n, config in enumerate(configs)
    }
    assert folders == {tmp_path / "translation-cells"}
    names = [
        {cell.folder.path for cell in runs(config, config.arms(), *folders)} for config in configs
    ]
    two, four, six = configs
    seeds = two.seeds
    # The large rate without warm-up, with it, and on its decay; only the two fixed rates are figure
    # 6's own.
    assert len(names[0] & names[2]) == 3 * seeds
    assert len(names[2] - names[0]) == 2 * seeds
    # Post-LN with warm-up, and, where there is a curve over rates, without it.
    assert len(names[0] & names[1]) == 2 * len(four.lrs) * seeds
    assert {cell.config.model.placement for cell in runs(six, six.arms(), *folders)} == {"post-ln"}


def test_a_run_s_name_has_all_that_its_numbers_depend_on(tmp_path: Path) -> None:
    def name(config: RunsConfig, arm: TranslationArm = ARMS[0]) -> Path:
        return runs(config, [arm], tmp_path)[0].folder.path

    same = name(SMALL)
    for changes in (
        {"width": 16},
        {"toy_pairs": 200},
        {"epoch_updates": 4},
        {"bleu_sentences": 2},
        {"dropout": 0.1},
    ):
        assert name(replace(SMALL, **changes)) != same
    for changes in ({"seeds": 3}, {"epochs": 3}, {"en_de_accumulation": 2}, {"device": "auto"}):
        assert name(replace(SMALL, **changes)) == same
    english = replace(ARMS[0], pair="en-de")
    assert name(replace(SMALL, en_de_accumulation=2), english) != name(SMALL, english)


def results(cells: Iterable[Cell]) -> dict[str, bytes]:
    return {
        cell.folder.path.parents[1].name: cell.folder.metrics_file.read_bytes() for cell in cells
    }


def runs(config: RunsConfig, arms: Iterable[TranslationArm], folder: Path) -> list[Cell]:
    """Of all arms, the first one's first."""
    return [cell for cells in cells_of(config, arms, folder).values() for cell in cells]


def test_a_killed_study_goes_on_and_trains_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    whole, killed = (runs(SMALL, ARMS, tmp_path / name) for name in ("whole", "killed"))
    shown: list[tuple[str, int, int]] = []
    pieces = Pieces(tmp_path, watch=lambda *values: shown.append(values))
    train_all(whole, "the trainings", pieces)

    class Killed(BaseException):
        pass

    def kill(event: dict[str, Any]) -> None:
        # After the first checkpoint, two updates into the second epoch.
        if event["event"] == "update" and event["update"] == SMALL.epoch_updates + 2:
            raise Killed

    train_all(killed[:1], "the trainings", pieces)
    finished = killed[0].folder.metrics_file.stat().st_mtime_ns
    with pytest.raises(Killed):
        train_run(killed[1].config, killed[1].folder.path, listeners=[kill])
    begun: list[int] = []
    original = in_process.train_run

    def watched(config: Any, path: Path, **given: Any) -> Any:
        first = lambda event: begun.append(event["update"]) if event["event"] == "update" else None  # noqa: E731
        return original(config, path, listeners=[first], **given)

    monkeypatch.setattr(in_process, "train_run", watched)
    train_all(killed, "the trainings", pieces)
    # What took how long is known of all but the one that something else began.
    spent = {cell: pieces.processor_seconds[str(cell.folder.path)] for cell in (*whole, *killed)}
    assert [cell for cell, seconds in spent.items() if not seconds] == [killed[1]]
    assert pieces.processor_hours is None
    again = Pieces(tmp_path)
    train_all(whole, "the trainings", again)
    assert again.processor_hours == pytest.approx(sum(spent[cell] or 0 for cell in whole) / 3600)
    assert begun[0] == SMALL.epoch_updates + 1
    assert killed[0].folder.metrics_file.stat().st_mtime_ns == finished
    assert results(whole) == results(killed)
    assert curve_of(killed[1]).summed_lr[-1] == pytest.approx(LONG.summed_lr, rel=1e-12)


def test_progress_is_counted_in_updates_of_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ended early takes no more updates, or the time left would never come to
    nothing.
    """

    def pool(cells: list[Cell], *, watch: Any, **options: object) -> list[Any]:
        states = [CellState(cell) for cell in cells]
        states[0].update, states[0].status = 2, "non-finite"
        states[1].update, states[1].status = 4, "running"
        watch(states)
        return states

    monkeypatch.setattr(trainings, "run_cells", pool)
    shown: list[tuple[str, int, int]] = []
    cells = runs(SMALL, ARMS, tmp_path)
    train_all(cells, "the trainings", Pieces(tmp_path, watch=lambda *values: shown.append(values)))
    first, second = (arm.updates for arm in ARMS)
    assert shown == [("updates of the trainings", first + 4, first + second)]


def test_a_training_that_failed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pool(cells: list[Cell], **options: object) -> list[Any]:
        states = [CellState(cell) for cell in cells]
        states[1].status, states[1].message = "failed", "no room on the disk"
        return states

    monkeypatch.setattr(trainings, "run_cells", pool)
    cells = runs(SMALL, ARMS, tmp_path)
    with pytest.raises(UserError, match=f"{cells[1].name}: no room on the disk"):
        train_all(cells, "the trainings", Pieces(tmp_path))


def test_missing_text_is_told_with_the_setting_that_names_it(tmp_path: Path) -> None:
    for setting, arm in (("corpus", ARMS[0]), ("en_de_corpus", replace(ARMS[0], pair="en-de"))):
        config = replace(SMALL, **{setting: str(tmp_path / "none")})
        with pytest.raises(UserError, match=f"--set {setting}=FOLDER"):
            cells_of(config, [arm], tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"short_warmup_updates": 5}, "must rise"),
        ({"short_warmup_updates": 1}, "must rise"),
        ({"long_warmup_updates": 6}, "must rise"),
        ({"seeds": 0}, "at least 1"),
        ({"epochs": 1}, "epochs must be at least 2"),
        ({"bleu_sentences": 0}, "bleu_sentences"),
        ({"small_lr": 1.0}, "small_lr"),
        ({"small_epochs": 1}, "small_epochs"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


def test_what_is_asked_at_the_end_of_a_run() -> None:
    curve = TranslationCurve(
        updates=[10, 20, 30],
        nll_nats=[6.0, 5.0, 5.5],
        loss_nats=[6.0, 5.0, 5.5],
        bleu=[0.0, 1.0, 0.5],
        summed_lr=[1, 2, 3],
        first_nats=8.0,
        ended="finished",
    )
    assert (curve.final_nats, curve.final_bleu) == (5.5, 0.5)
    assert [curve.updates_to(nats) for nats in (6.5, 5.5, 5.0, 4.0)] == [10, 15, 20, None]
    assert [curve.nats_at(update) for update in (10, 25, 99)] == [6.0, 5.0, 5.5]
    broken = replace(curve, ended="non-finite")
    assert (broken.final_nats, broken.final_bleu) == (8.0, 0.0)


def test_a_run_that_is_not_finite_before_its_first_validation_has_a_loss(tmp_path: Path) -> None:
    config = replace(SMALL, peak_lr=1e30, small_lr=1e29)
    large = config.arms()[-1]
    (cell,) = runs(config, [large], tmp_path)
    with pytest.raises(NonFinite):
        train_run(cell.config, cell.folder.path)
    found = curve_of(cell)
    events = [json.loads(line) for line in cell.folder.metrics_file.read_text().splitlines()]
    assert found.ended == "non-finite"
    assert found.final_nats == events[1]["nll_nats"] == found.first_nats


def test_the_footnote_s_recipe_is_the_footnote_s() -> None:
    """Xiong et al. 2020, appendix A.1, footnote 1."""
    config = load(Path(__file__).parents[2] / "docs/iwslt14_pre_ln.toml")
    assert isinstance(config, TranslationRunConfig)
    assert (config.optimizer.name, config.optimizer.peak_lr) == ("adam", 7.5e-4)
    assert (config.data.max_tokens, config.model.placement) == (8192, "pre-ln")
    assert (config.model.dropout, config.model.attention_dropout) == (0.3, 0.1)
    rates = [
        factor(config.schedule, update, horizon_updates=30_000) for update in (1, 8_000, 32_000)
    ]
    assert rates == [1.0, 1.0, 0.5]
