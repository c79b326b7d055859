"""Figure 5: what the curves are judged to say, and a whole run of the smallest scale."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

import in_process
from normscope.errors import UserError
from normscope.provenance import source_sha256
from normscope.report.chart import Panel
from normscope.train.run_folder import RunFolder
from normscope_studies.engine import ladders
from normscope_studies.engine import page as contents
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.figure_5.config import SCALES, Figure5Config, check_inputs
from normscope_studies.figure_5.page import data, figures, tables
from normscope_studies.figure_5.study import PUBLISHED_SHARE, STUDY, claims
from normscope_studies.figure_5.trainings import (
    Chance,
    PretrainingCurve,
    PretrainingCurves,
    TunedPoint,
    TunedTask,
    chance,
    shares,
)
from normscope_studies.translation.comparing import updates_to

CONFIG = Figure5Config(seeds=2, updates=100, warmup_updates=10, validations=4, tasks=("mrpc",))
UPDATES = (25, 50, 75, 100)
UNIGRAM = 6.0
CHANCE = Chance(nll_nats=UNIGRAM, next_sentence_accuracy=0.57)


def curve(*losses: float, ended: str = "finished") -> PretrainingCurve:
    updates = UPDATES[: len(losses)]
    masked = [loss - 0.5 for loss in losses]
    return PretrainingCurve(
        folder=RunFolder(Path("nowhere")),
        updates=updates,
        loss_nats=losses,
        nll_nats=masked,
        next_sentence_accuracy=[0.5] * len(losses),
        ended=ended,
    )


def curves(*losses: tuple[float, ...]) -> PretrainingCurves:
    """One curve an arm, in the order of the configuration, the same for both seeds."""
    return {arm: [curve(*row), curve(*row)] for arm, row in zip(CONFIG.arms, losses, strict=True)}


POST = (6.0, 5.5, 5.2, 5.0)
FASTER = (5.8, 5.1, 4.9, 4.8)
SLOWER = (6.0, 5.9, 5.6, 5.4)
STUCK = (6.9, 6.8, 6.8, 6.7)


@pytest.mark.parametrize(("target", "expected"), [(6.0, 25), (5.75, 37.5), (5.0, 100), (6.5, 25), (4.9, None)])
def test_where_a_curve_comes_down_to_a_loss(target: float, expected: float | None) -> None:
    assert updates_to(UPDATES, POST, target) == (None if expected is None else pytest.approx(expected))


def test_a_curve_that_rises_again_counts_where_it_first_was() -> None:
    assert updates_to(UPDATES, (6.0, 5.0, 5.5, 5.0), 5.2) == pytest.approx(45)


def test_the_share_of_updates_is_of_the_other_arm_of_the_same_seed() -> None:
    own = CONFIG.pairs[0]
    found = curves(POST, FASTER, STUCK, SLOWER)
    found[own.pre][1] = curve(*SLOWER)
    # 5.1 after 50 and 4.9 after 75: 5.0 half-way between.
    assert shares(own, found) == [pytest.approx(0.625), None]


def verdicts(found: PretrainingCurves, tuned: dict[str, TunedTask] | None = None) -> dict[str, str]:
    return {claim.name: claim.verdict for claim in claims(CONFIG, found, UNIGRAM, tuned or {})}


def test_the_paper_s_picture_is_reproduced_where_it_is_seen() -> None:
    found = curves(POST, FASTER, STUCK, FASTER)
    assert set(verdicts(found).values()) == {"reproduced"}
    told = {claim.name: claim for claim in claims(CONFIG, found, UNIGRAM, {})}
    assert "0.625" in told["(a) Pre-LN is faster"].found
    assert f"{PUBLISHED_SHARE:.3f}" in told["(a) Pre-LN is faster"].statement


def test_each_claim_fails_by_itself() -> None:
    assert verdicts(curves(POST, SLOWER, STUCK, FASTER)) == {
        "(a) Pre-LN does without warm-up": "contradicted",
        "(a) Pre-LN is faster": "reproduced under conditions",
        "(a) Post-LN diverges at the larger rate": "reproduced",
    }
    slower_everywhere = curves(POST, SLOWER, FASTER, SLOWER)
    assert set(verdicts(slower_everywhere).values()) == {"contradicted"}


def test_a_run_that_stopped_has_diverged() -> None:
    found = curves(POST, FASTER, FASTER, FASTER)
    assert verdicts(found)["(a) Post-LN diverges at the larger rate"] == "contradicted"
    large = CONFIG.pairs[2].post
    found[large] = [curve(5.8, 5.5, ended="non-finite"), curve(*STUCK)]
    assert verdicts(found)["(a) Post-LN diverges at the larger rate"] == "reproduced"


def test_one_seed_decides_nothing() -> None:
    """One run each, however far apart, has no interval: a third verdict, and the page says why."""
    found = {arm: runs[:1] for arm, runs in curves(POST, FASTER, STUCK, FASTER).items()}
    assert set(verdicts(found).values()) == {"undecided"}
    assert all("One seed has no interval" in claim.found for claim in claims(CONFIG, found, UNIGRAM, {}))


def tuned(post: list[float], pre: list[float]) -> dict[str, TunedTask]:
    own = CONFIG.pairs[0]
    update = CONFIG.tuned_updates[-1]
    points = {
        (own.post, CONFIG.tuned_updates[0]): TunedPoint(setting="s", accuracies=post, f1s=post),
        (own.pre, CONFIG.tuned_updates[0]): TunedPoint(setting="s", accuracies=pre, f1s=pre),
        (own.post, update): TunedPoint(setting="s", accuracies=post, f1s=post),
        (own.pre, update): TunedPoint(setting="s", accuracies=pre, f1s=pre),
    }
    searched = [(own.post, update, "s", 0.7), (own.pre, update, "s", None)]
    return {"mrpc": TunedTask(majority=0.684, conditions="c", points=points, searched=searched)}


@pytest.mark.parametrize(
    ("post", "pre", "verdict"),
    [
        ([0.70, 0.71, 0.70], [0.73, 0.745, 0.735], "reproduced"),
        ([0.73, 0.745, 0.735], [0.70, 0.71, 0.70], "contradicted"),
        ([0.70, 0.72, 0.71], [0.72, 0.71, 0.70], "undecided"),
    ],
)
def test_accuracies_are_compared_with_their_spread(post: list[float], pre: list[float], verdict: str) -> None:
    claim = claims(CONFIG, curves(POST, FASTER, STUCK, FASTER), UNIGRAM, tuned(post, pre))[-1]
    assert (claim.name, claim.verdict) == ("(b) Pre-LN is ahead on MRPC", verdict)


def test_the_page_shows_what_its_data_hold() -> None:
    found, tuning = curves(POST, FASTER, STUCK, FASTER), tuned([0.70, 0.71, 0.70], [0.73, 0.745, 0.735])
    held = data(CONFIG, found, CHANCE, tuning)
    own = CONFIG.pairs[0]
    assert held["pre_training"][own.pre.title]["last_loss_nats"] == [4.8, 4.8]
    assert held["fine_tuning"]["mrpc"]["points"][-1]["above_majority"] is True
    pictures = figures(found, CHANCE, tuning)
    assert all(own.pre.title in picture.svg for picture in pictures)
    assert "(b) MRPC" in pictures[0].svg
    assert [len(table.rows) for table in tables(CONFIG, found, tuning)] == [8, 3, 4, 2]


def test_a_single_checkpoint_is_drawn_beside_the_other_arm_s(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Panel] = []

    def note(panels: list[Panel], *, title: str) -> str:
        drawn.extend(panels)
        return title

    monkeypatch.setattr(contents, "panels_svg", note)
    tuning = tuned([0.70, 0.71, 0.70], [0.73, 0.745, 0.735])["mrpc"]
    last = CONFIG.tuned_updates[-1]
    points = {key: point for key, point in tuning.points.items() if key[1] == last}
    figures(curves(POST, FASTER, STUCK, FASTER), CHANCE, {"mrpc": replace(tuning, points=points)})
    panel = drawn[1]
    assert (panel.ticks, panel.xlabel) == (["Post-LN", "Pre-LN"], f"pre-trained for {last:,} updates")
    assert [series.x[1] for series in panel.series[:2]] == [0, 1]
    assert all(low < y < high for s in panel.series[:2] for low, y, high in zip(s.low, s.y, s.high, strict=True))
    assert panel.series[2].y == [0.684, 0.684]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"post_lr": 2e-3}, "must be below pre_lr"),
        ({"warmup_updates": 100}, "between 0 and updates"),
        ({"checkpoints": (0.5, 0.2)}, "rising parts"),
        ({"checkpoints": (0.5, 1.2)}, "rising parts"),
        ({"sequence_length": 200}, "above model.positions"),
        ({"tune_seeds": 1}, "tune_seeds must be at least 2"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **changes)


def test_missing_files_are_told_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="normscope data documents"):
        check_inputs(replace(CONFIG, corpus=str(tmp_path / "none")))
    with pytest.raises(UserError, match="--set glue=FOLDER"):
        check_inputs(replace(CONFIG, corpus="toy", glue=str(tmp_path)))


def test_chance_is_counted_on_the_validation_pairs() -> None:
    config = SCALES["smoke"].config
    found = chance(config)
    assert 0.5 <= found.next_sentence_accuracy < 0.8
    assert 0 < found.nll_nats < math.log(300)


def test_every_scale_trains_the_arms_of_the_paper() -> None:
    for scale in SCALES.values():
        config = scale.config
        assert [arm[0] for arm in config.arms] == ["post-ln", "pre-ln", "post-ln", "pre-ln"]
        assert [bool(arm[1]) for arm in config.arms] == [True, False, True, False]
        assert config.pre_lr == pytest.approx(3 * config.post_lr)
        assert config.tuned_updates[-1] == config.updates


def test_the_smallest_scale_runs_and_goes_on_without_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladders, "run_cells", in_process.run_cells)
    config = replace(SCALES["smoke"].config, updates=3, warmup_updates=1, validations=1)
    found, page = run_study(STUDY, config, Pieces(tmp_path), command="test")
    assert page.is_file()
    assert len(found.claims) == 3
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("metrics.jsonl")}
    assert len(times) == 4
    assert {one["source_sha256"] for one in found.data["runs"].values()} == {source_sha256()}
    assert f"source {source_sha256()[:12]} (4 runs)" in dict(found.conditions)["trained by"]
    again, _ = run_study(STUDY, config, Pieces(tmp_path), command="test")
    assert again.data == found.data
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("metrics.jsonl")} == times
