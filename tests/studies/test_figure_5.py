"""Figure 5: what made-up curves and fine-tunings are judged to say, and a whole run of the smallest
scale.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import in_process
from normscope.errors import UserError
from normscope.finetune.cells import SEARCHES
from normscope.provenance import source_sha256
from normscope.report.chart import Panel
from normscope.settings.tables import as_table
from normscope.tasks.registry import config_of
from normscope.train.run_folder import RunFolder
from normscope_studies.engine import page as contents, trainings
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.figure_5.config import (
    POST,
    PRE,
    SCALES,
    Figure5Config,
    PretrainingArm,
    check_inputs,
)
from normscope_studies.figure_5.page import data, figures, tables
from normscope_studies.figure_5.pretraining import (
    Chance,
    PretrainingCurve,
    PretrainingCurves,
    chance,
    shares,
)
from normscope_studies.figure_5.study import PUBLISHED_SHARE, STUDY, claims
from normscope_studies.figure_5.tuning import TriedSetting, TunedPoint, TunedTask
from normscope_studies.translation.runs import updates_to

CONFIG = Figure5Config(
    seeds=2,
    updates=100,
    warmup_updates=10,
    checkpoints=2,
    validations=2,
    tuned=(1, 2),
    tasks=("mrpc",),
)
UPDATES = (25, 50, 75, 100)
UNIGRAM = 6.0
CHANCE = Chance(nll_nats=UNIGRAM, next_sentence_accuracy=0.57, next_sentence_nats=0.68)
PAIRS = 200
OWN = CONFIG.pairs[0]


def curve(*losses: float, ended: str = "finished") -> PretrainingCurve:
    return PretrainingCurve(
        folder=RunFolder(Path("nowhere")),
        updates=UPDATES[: len(losses)],
        loss_nats=losses,
        nll_nats=[loss - 0.5 for loss in losses],
        next_sentence_accuracy=[0.5] * len(losses),
        ended=ended,
    )


def curves(*losses: tuple[float, ...]) -> dict[PretrainingArm, list[PretrainingCurve]]:
    """Two curves an arm, in the order of the configuration, which end a hair apart."""
    made = {}
    for arm, row in zip(CONFIG.arms, losses, strict=True):
        made[arm] = [curve(*row), curve(*row[:-1], row[-1] + 0.001)]
    return made


POST_LN = (6.0, 5.5, 5.2, 5.0)
FASTER = (5.8, 5.1, 4.9, 4.8)
SLOWER = (6.0, 5.9, 5.6, 5.4)
STUCK = (6.9, 6.8, 6.8, 6.7)


@pytest.mark.parametrize(
    ("target", "expected"), [(6.0, 25), (5.75, 37.5), (5.0, 100), (6.5, 25), (4.9, None)]
)
def test_where_a_curve_comes_down_to_a_loss(target: float, expected: float | None) -> None:
    found = updates_to(UPDATES, POST_LN, target)
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_curve_that_rises_again_counts_where_it_first_was() -> None:
    assert updates_to(UPDATES, (6.0, 5.0, 5.5, 5.0), 5.2) == pytest.approx(45)


def shares_of(found: PretrainingCurves) -> list[float | None]:
    return shares(OWN, found, updates=CONFIG.updates, chance_nats=CHANCE.loss_nats)


def test_the_share_of_updates_is_of_the_other_arm_of_the_same_seed() -> None:
    found = curves(POST_LN, FASTER, STUCK, SLOWER)
    found[OWN.pre][1] = curve(*SLOWER)
    # 5.1 after 50 and 4.9 after 75: 5.0 half-way between.
    assert shares_of(found) == [pytest.approx(0.625), None]


def test_where_post_ln_did_not_stay_finite_chance_is_where_it_ends() -> None:
    """6.68 nats: Pre-LN is there at its first validation."""
    found = curves(POST_LN, FASTER, STUCK, SLOWER)
    found[OWN.post] = [curve(6.0, ended="non-finite"), curve(6.0, ended="non-finite")]
    assert shares_of(found) == [0.25, 0.25]


def found_in(
    pretrained: PretrainingCurves, tuned: dict[str, TunedTask] | None = None
) -> dict[str, Any]:
    return {claim.name: claim for claim in claims(CONFIG, pretrained, CHANCE, tuned or {})}


def verdicts(pretrained: PretrainingCurves) -> dict[str, str]:
    return {name: str(claim.verdict) for name, claim in found_in(pretrained).items()}


def test_the_paper_s_picture_is_reproduced_where_it_is_seen() -> None:
    found = curves(POST_LN, FASTER, STUCK, FASTER)
    assert set(verdicts(found).values()) == {"reproduced"}
    told = found_in(found)
    assert "0.62" in told["(a) Pre-LN is faster"].found
    assert f"{PUBLISHED_SHARE:.3f}" in told["(a) Pre-LN is faster"].statement


def test_each_claim_fails_by_itself() -> None:
    assert verdicts(curves(POST_LN, SLOWER, STUCK, FASTER)) == {
        "(a) Pre-LN does without warm-up": "contradicted",
        "(a) Pre-LN is faster": "reproduced under conditions",
        "(a) Post-LN diverges at the larger rate": "reproduced",
        "(a) Pre-LN takes the larger rate better": "reproduced",
    }
    assert set(verdicts(curves(POST_LN, SLOWER, FASTER, SLOWER)).values()) == {"contradicted"}


def test_a_run_that_stopped_has_diverged() -> None:
    found = curves(POST_LN, FASTER, FASTER, FASTER)
    name = "(a) Post-LN diverges at the larger rate"
    assert verdicts(found)[name] == "contradicted"
    found[CONFIG.pairs[2].post] = [curve(5.8, 5.5, ended="non-finite"), curve(*STUCK)]
    assert verdicts(found)[name] == "reproduced"
    assert "not finite, 6.200" in found_in(found)[name].found
    found[CONFIG.pairs[2].post] = [curve(5.8, 5.5, ended="non-finite"), curve(*FASTER)]
    assert verdicts(found)[name] == "undecided"


def test_one_seed_of_pre_training_decides_nothing_of_it() -> None:
    """One run each, however far apart, has no interval: a third verdict, and the page says why."""
    config = replace(CONFIG, seeds=1)
    found = {arm: runs[:1] for arm, runs in curves(POST_LN, FASTER, STUCK, FASTER).items()}
    made = claims(config, found, CHANCE, {})
    assert {str(claim.verdict) for claim in made} == {"undecided"}
    assert all("One seed has no interval" in claim.found for claim in made)


def right(accuracy: float, seed: int) -> np.ndarray:
    """Which of the pairs a model with this accuracy gives the right label; drawn by the seed."""
    chosen = np.zeros(PAIRS)
    chosen[: round(accuracy * PAIRS)] = 1
    return np.random.default_rng(seed).permutation(chosen)


def point(
    arm: PretrainingArm, seed: int, update: int, accuracies: list[float], row: int = 0
) -> TunedPoint:
    rows = [right(one, 100 * row + number) for number, one in enumerate(accuracies)]
    return TunedPoint(
        arm=arm,
        seed=seed,
        update=update,
        setting="batch 16",
        accuracies=accuracies,
        right_P=np.mean(rows, axis=0),
    )


def tuned(post: list[list[float]], pre: list[list[float]], majority: float = 0.6) -> TunedTask:
    """The same after both checkpoints. A list for each pre-training, of an accuracy a seed."""
    points = [
        point(arm, seed, update, accuracies, row=10 * seed + update + (arm == OWN.pre))
        for arm, rows in ((OWN.post, post), (OWN.pre, pre))
        for seed, accuracies in enumerate(rows, 1)
        for update in CONFIG.tuned_updates
    ]
    return TunedTask(
        task="mrpc",
        majority_P=np.arange(PAIRS) < majority * PAIRS,
        points=points,
        searched=[
            TriedSetting(OWN.post, "batch 16", 0.7),
            TriedSetting(OWN.pre, "batch 32", None),
        ],
    )


LOW = [[0.70, 0.71, 0.70], [0.71, 0.70, 0.72], [0.70, 0.71, 0.71]]
HIGH = [[0.93, 0.94, 0.93], [0.94, 0.95, 0.94], [0.93, 0.95, 0.95]]


def ahead(post: list[list[float]], pre: list[list[float]], **given: Any) -> Any:
    pretrained = curves(POST_LN, FASTER, STUCK, FASTER)
    found = found_in(pretrained, {"mrpc": tuned(post, pre, **given)})
    return found["(b) Pre-LN is ahead on MRPC"]


def test_accuracies_are_compared_with_their_spread_over_seeds_and_over_pairs() -> None:
    assert str(ahead(LOW, HIGH).verdict) == "reproduced"
    assert str(ahead(HIGH, LOW).verdict) == "contradicted"
    # Far enough apart for three seeds that agree, and not for 200 pairs.
    near = [[accuracy + 0.01 for accuracy in row] for row in LOW]
    claim = ahead(LOW, near)
    assert str(claim.verdict) == "undecided"
    assert "after 50 updates, over seeds" in claim.conditions
    assert "undecided: after 50 updates, over dev pairs" in claim.conditions


def test_two_encoders_below_the_majority_class_are_not_compared() -> None:
    claim = ahead(LOW, HIGH, majority=0.97)
    assert str(claim.verdict) == "undecided"
    assert "0 of 4 checkpoints are above it" in claim.found


def test_one_pre_training_is_judged_over_its_fine_tunings_as_in_the_paper() -> None:
    one = tuned([LOW[0]], [HIGH[0]])
    found = one.advantage(OWN.pre, OWN.post, CONFIG.tuned_updates[0])
    assert (found.count, float(found.mean)) == (3, pytest.approx(0.23))
    several = tuned(LOW, HIGH).advantage(OWN.pre, OWN.post, CONFIG.tuned_updates[0])
    assert several.count == 3


def test_seeds_matter_where_accuracies_scatter_and_only_above_the_majority_class() -> None:
    name = "fine-tuning depends on its seed"
    pretrained = curves(POST_LN, FASTER, STUCK, FASTER)

    def verdict(rows: list[list[float]], **given: Any) -> str:
        return str(found_in(pretrained, {"mrpc": tuned(rows, rows, **given)})[name].verdict)

    scattered = [[0.75, 0.80, 0.85], [0.77, 0.80, 0.84], [0.74, 0.80, 0.85]]
    assert verdict(scattered) == "reproduced"
    assert verdict([[0.80, 0.80, 0.80]] * 3) == "contradicted"
    assert verdict(scattered, majority=0.97) == "undecided"


def test_an_arm_without_a_finished_run_is_not_fine_tuned_and_decides_nothing() -> None:
    one = tuned(LOW, HIGH)
    alone = replace(one, points=[point for point in one.points if point.arm == OWN.pre])
    found = found_in(curves(POST_LN, FASTER, STUCK, FASTER), {"mrpc": alone})
    assert str(found["(b) Pre-LN is ahead on MRPC"].verdict) == "undecided"
    pretrained = curves(POST_LN, FASTER, STUCK, FASTER)
    assert figures(CONFIG, pretrained, CHANCE, {"mrpc": alone})
    assert tables(CONFIG, pretrained, CHANCE, {"mrpc": alone})


def test_the_page_shows_what_its_data_hold() -> None:
    pretrained, tuning = curves(POST_LN, FASTER, STUCK, FASTER), {"mrpc": tuned(LOW, HIGH)}
    held = data(CONFIG, pretrained, CHANCE, tuning)
    assert [one["loss_nats"][-1] for one in held["pre_training"][OWN.pre.title]["seeds"]] == [
        4.8,
        4.801,
    ]
    assert held["fine_tuning"]["mrpc"]["majority"] == 0.6
    assert len(held["fine_tuning"]["mrpc"]["points"]) == 12
    pictures = figures(CONFIG, pretrained, CHANCE, tuning)
    assert all(OWN.pre.title in picture.svg for picture in pictures)
    assert "(b) MRPC" in pictures[0].svg
    found = tables(CONFIG, pretrained, CHANCE, tuning)
    assert [len(one.rows) for one in found] == [8, 6, 4, 12, 2]


def test_a_single_checkpoint_is_wide_enough_to_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Panel] = []

    def note(panels: list[Panel], *, title: str) -> str:
        drawn.extend(panels)
        return title

    monkeypatch.setattr(contents, "panels_svg", note)
    config = replace(CONFIG, tuned=(2,))
    figures(config, curves(POST_LN, FASTER, STUCK, FASTER), CHANCE, {"mrpc": tuned(LOW, HIGH)})
    panel = drawn[1]
    assert [list(series.x) for series in panel.series[:2]] == [[87.5, 100, 112.5]] * 2
    assert panel.series[2].y == [0.6, 0.6]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"post_lr": 4e-3}, "must be below pre_lr"),
        ({"warmup_updates": 100}, "between 0 and updates"),
        ({"updates": 101}, "must be a multiple of checkpoints=2 times validations=2"),
        ({"tuned": (2, 1)}, "in rising order, from 1 to 2"),
        ({"tuned": (1, 3)}, "in rising order, from 1 to 2"),
        ({"tuned": ()}, "in rising order, from 1 to 2"),
        ({"tune_seeds": 1}, "tune_seeds must be at least 2"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **changes)


def test_missing_files_are_told_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="normscope data documents"):
        check_inputs(replace(CONFIG, corpus=str(tmp_path / "none")))
    with pytest.raises(UserError, match=r"no .*mrpc/train\.tsv.*--set glue=FOLDER"):
        check_inputs(replace(CONFIG, corpus="toy", glue=str(tmp_path)))


def test_chance_is_counted_on_the_validation_pairs() -> None:
    config = SCALES["smoke"]
    found = chance(config)
    assert 0.5 <= found.next_sentence_accuracy < 0.8
    assert 0 < found.nll_nats < math.log(300)
    share = found.next_sentence_accuracy
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert found.loss_nats == pytest.approx(found.nll_nats + entropy)


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_trains_the_arms_of_the_paper_with_devlin_s_settings(scale: str) -> None:
    config = SCALES[scale]
    assert [arm.placement for arm in config.arms] == [POST, PRE, POST, PRE]
    assert [bool(arm.warmup_updates) for arm in config.arms] == [True, False, True, False]
    assert config.pre_lr == pytest.approx(3 * config.post_lr)
    assert config.tuned_updates[-1] == config.updates
    run = config.training()
    assert (run.optimizer.betas, run.optimizer.weight_decay) == ((0.9, 0.999), 0.01)
    assert (run.train.clip_norm, run.schedule.decay) == (1.0, "linear")
    assert config_of(as_table(run), source="study") == run


def test_every_checkpoint_that_is_fine_tuned_is_kept() -> None:
    """The best of the validations are kept beside the last ones: as many as there may be."""
    for config in SCALES.values():
        train = config.training().train
        assert train.keep_checkpoints > config.checkpoints * config.validations
        assert all(update % train.checkpoint_every == 0 for update in config.tuned_updates)
        assert all(update % train.validate_every == 0 for update in config.tuned_updates)


def test_the_paper_s_scale_is_the_paper_s() -> None:
    """Sections 4.1 and A.2: BERT-base, 256 sequences of 512 tokens, rates, warm-up; and A.3."""
    config = SCALES["paper"]
    assert (config.blocks, config.width, config.heads) == (12, 768, 12)
    assert config.tokens_per_update == 256 * 512
    assert (config.warmup_updates, config.post_lr, config.pre_lr) == (10_000, 1e-4, 3e-4)
    assert config.updates == 1_000_000
    assert config.space() == SEARCHES["paper"]
    assert config.tune_seeds == 6


def test_the_smallest_scale_runs_and_goes_on_without_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="needs Hugging Face transformers")
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    small = {"updates": 4, "warmup_updates": 1, "validations": 1, "tune_rates": (1e-3,)}
    config = replace(SCALES["smoke"], **small)
    found, page = run_study(STUDY, config, Pieces(tmp_path, processes=1), command="test")
    assert page.is_file()
    assert [claim.name for claim in found.claims][-2:] == [
        "(b) Pre-LN is ahead on TOY",
        "fine-tuning depends on its seed",
    ]
    kept = [*tmp_path.rglob("metrics.jsonl"), *tmp_path.rglob("fine-tuning/*/cells/*.json")]
    # Two arms from two checkpoints with two seeds each.
    assert len(kept) == 4 + 8
    for run in tmp_path.glob("pre-training/runs/*/checkpoints"):
        assert {one.name for one in run.iterdir()} == {"step-2", "step-4"}
    times = {file: file.stat().st_mtime_ns for file in kept}
    assert {one["source_sha256"] for one in found.data["runs"].values()} == {source_sha256()}
    again, _ = run_study(STUDY, config, Pieces(tmp_path, processes=1), command="test")
    assert json.dumps(again.data, default=str) == json.dumps(found.data, default=str)
    assert {file: file.stat().st_mtime_ns for file in kept} == times
    # All is over, and a plan says so.
    plan = STUDY.plan(config, tmp_path)
    assert [(one.runs, one.over, one.updates) for one in plan.stages] == [(4, 4, 0), (8, 8, 0)]
