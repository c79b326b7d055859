"""Means with intervals over seeds and over rows, beside other ways of computing them."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from normscope.adapters.fine_tuning import TrainerOutcome
from normscope.data.labelled import LabelledData, LabelledSplit
from normscope.errors import UserError
from normscope.finetune.cells import (
    SEARCHES,
    SearchSpace,
    TuningCell,
    mean_nll_nats,
    scored,
    search_space,
    tuning_cells,
)
from normscope.finetune.summary import best_setting, over_rows, over_seeds, tuned_setting


def data(labels: list[int], majority: int = 1) -> LabelledData:
    tokens = [np.arange(3)] * len(labels)
    split = LabelledSplit(tokens_T=tokens, segments_T=tokens, labels_P=np.array(labels))
    return LabelledData(
        labels=("no", "yes"), majority=majority, train=split, dev=split, pad=0, cut=0
    )


def cells(folder: Path, seeds: int = 1, space: SearchSpace = SEARCHES["none"]) -> list[TuningCell]:
    return tuning_cells(
        space.settings(),
        range(1, seeds + 1),
        folder,
        rows=50,
        warmup_share=0.1,
        device="cpu",
        asked={"weights_sha256": "w"},
    )


def finish(cell: TuningCell, of: LabelledData, logits_PC: list[list[float]]) -> None:
    outcome = TrainerOutcome(losses=[(1, 0.7)], logits_PC=np.array(logits_PC))
    cell.write(scored(outcome, of, processor_seconds=1.0, made_by={}))


def test_the_interval_over_seeds_is_student_s() -> None:
    values = [0.70, 0.72, 0.69, 0.71, 0.74, 0.70]
    low, high = stats.t.interval(0.95, 5, np.mean(values), stats.sem(values))
    found = over_seeds(values)
    assert found.low == pytest.approx(low, abs=1e-12)
    assert found.mean + (found.half_width or 0) == pytest.approx(high, abs=1e-12)
    assert over_seeds([0.7]).half_width is None


def test_the_interval_over_rows_is_that_of_scipy_s_bootstrap() -> None:
    generator = np.random.default_rng(3)
    differences = generator.choice([-1.0, 0.0, 1.0], 300, p=[0.2, 0.5, 0.3])
    found = over_rows(differences)
    theirs = stats.bootstrap(
        (differences,), np.mean, n_resamples=10_000, method="percentile", rng=generator
    ).confidence_interval
    # Each end is a quantile of 10,000 draws, which scatters by some hundredths of the half width.
    half = (theirs.high - theirs.low) / 2
    assert (found.low, found.high) == (
        pytest.approx(theirs.low, abs=0.1 * half),
        pytest.approx(theirs.high, abs=0.1 * half),
    )
    assert found.mean == differences.mean()
    assert over_rows(differences) == found


def test_a_pairing_narrows_the_interval_of_models_that_err_alike() -> None:
    generator = np.random.default_rng(5)
    one = generator.integers(0, 2, 200).astype(float)
    other = one.copy()
    other[:4] = 1 - other[:4]
    paired = over_rows(one - other)
    apart = over_rows(one - generator.permutation(other))
    assert paired.high - paired.low < 0.3 * (apart.high - apart.low)


@pytest.mark.parametrize("values", [[], [[1.0]]])
def test_rows_are_a_list_that_is_not_empty(values: list[object]) -> None:
    with pytest.raises(ValueError, match="a value for each row"):
        over_rows(np.array(values, dtype=float))


def test_the_loss_of_logits_is_that_of_scipy_s_softmax() -> None:
    from scipy.special import log_softmax

    logits = np.random.default_rng(1).normal(size=(7, 3)) * 50
    labels = np.array([0, 1, 2, 0, 1, 2, 0])
    expected = -log_softmax(logits, axis=-1)[np.arange(7), labels].mean()
    assert mean_nll_nats(logits, labels) == pytest.approx(expected, abs=1e-12)


def test_scores_are_kept_and_read_again_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path)
    assert cell.scores() is None
    finish(cell, data([1, 1, 0]), [[0, 1], [1, 0], [2, 1]])
    found = cell.scores()
    assert found is not None
    assert (found.accuracy, list(found.predicted)) == (pytest.approx(2 / 3), [1, 0, 0])
    assert list(found.losses) == [(1, 0.7)]
    text = cell.file.read_text()
    cell.file.write_text(text.replace('"accuracy": 0.66', '"accuracy": 0.96'))
    with pytest.raises(UserError, match="is damaged"):
        cell.scores()


def test_a_cell_of_another_encoder_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path)
    finish(cell, data([1, 0]), [[0, 1], [1, 0]])
    other = tuning_cells(
        SEARCHES["none"].settings(),
        [1],
        tmp_path,
        rows=50,
        warmup_share=0.1,
        device="cpu",
        asked={"weights_sha256": "x"},
    )
    with pytest.raises(UserError, match="its weights sha256 is 'w', and 'x' is asked for"):
        other[0].scores()


def test_the_best_setting_is_the_most_accurate_and_of_equals_the_surest(tmp_path: Path) -> None:
    of = data([1, 1, 0, 0])
    space = SearchSpace(batch_sizes=(16,), rates=(1e-5, 2e-5, 3e-5), epochs=(3,))
    worse, sure, unsure = cells(tmp_path, space=space)
    finish(worse, of, [[0, 9], [9, 0], [0, 9], [9, 0]])
    finish(sure, of, [[0, 2], [0, 2], [2, 0], [0, 1]])
    finish(unsure, of, [[0, 1], [0, 1], [1, 0], [0, 9]])
    assert best_setting([worse, unsure, sure]).peak_lr == 2e-5


def test_seeds_that_are_not_finite_are_named_and_left_out(tmp_path: Path) -> None:
    of = data([1, 1, 1, 0])
    found = cells(tmp_path, seeds=3)
    finish(found[0], of, [[0, 1]] * 4)
    finish(found[1], of, [[np.nan, 1]] * 4)
    finish(found[2], of, [[0, 1], [0, 1], [0, 1], [1, 0]])
    tuned = tuned_setting(found, of)
    assert (list(tuned.accuracies), list(tuned.non_finite_seeds)) == ([0.75, 1.0], [2])
    assert tuned.accuracy_of_other_seeds is not None
    assert tuned.accuracy_of_other_seeds.mean == 1.0
    assert (tuned.majority, tuned.above_majority.mean) == (0.75, pytest.approx(0.125))
    assert "NaN" not in found[1].file.read_text()
    json.loads(found[1].file.read_text())


def test_without_a_finite_seed_the_advice_is_a_smaller_rate(tmp_path: Path) -> None:
    of = data([1, 0])
    (cell,) = cells(tmp_path)
    finish(cell, of, [[np.inf, 0], [0, 1]])
    for judge in (lambda: best_setting([cell]), lambda: tuned_setting([cell], of)):
        with pytest.raises(UserError, match="give smaller --rates"):
            judge()


def always(correct: list[list[bool]], folder: Path) -> bool | None:
    """The verdict on seeds that are right so, on three rows of the majority class of four."""
    labels = [1, 1, 1, 0] * 25
    of = data(labels)
    found = cells(folder, seeds=len(correct))
    for cell, row in zip(found, correct, strict=True):
        chosen = [label if right else 1 - label for label, right in zip(labels, row, strict=True)]
        finish(cell, of, [[1 - one, one] for one in chosen])
    return tuned_setting(found, of).beats_majority


def test_above_the_majority_class_takes_both_intervals(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)

    def seeds(share: float) -> list[list[bool]]:
        return [(generator.random(100) < share).tolist() for _ in range(5)]

    assert always(seeds(0.95), tmp_path / "a") is True
    assert always(seeds(0.4), tmp_path / "b") is False
    assert always(seeds(0.76), tmp_path / "c") is None
    assert always(seeds(0.95)[:1], tmp_path / "d") is None


def test_the_paper_s_search_has_its_ranges() -> None:
    """Appendix A.3: batches of 16 and 32, rates from 1e-5 to 1e-4, 3 to 8 epochs."""
    space = search_space("paper")
    assert space.batch_sizes == (16, 32)
    assert (min(space.rates), max(space.rates)) == (1e-5, 1e-4)
    assert space.epochs == tuple(range(3, 9))
    assert len(list(space.settings())) == 60
    assert search_space("none", rates=[1e-3, 2e-3]).rates == (1e-3, 2e-3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rates": ()}, "one or more different values"),
        ({"epochs": (3, 3)}, "one or more different values"),
        ({"batch_sizes": (0,)}, "positive numbers"),
        ({"rates": (float("inf"),)}, "positive numbers"),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        search_space("small", **changes)  # type: ignore[arg-type]
