"""The search: which runs there are, which setting wins, what is said of it, and going on."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import normscope
from normscope.compare.compare import alone
from normscope.compare.state import CellState
from normscope.errors import UserError
from normscope.finetune import cells as made
from normscope.finetune import finetune as searching
from normscope.finetune.cells import (
    SearchSpace,
    TuningCell,
    best_setting,
    interval,
    lines,
    summary,
    table,
    tuning_cells,
)
from normscope.finetune.finetune import PairTask, RunsFailed, base_config, finetune, pair_task
from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.tasks.pair_classification import PairRunConfig, open_start
from normscope.train import RunFolder
from tiny import write_events
from tuned import pairs_file, pretrained, tuning

SPACE = SearchSpace(batch_sizes=(8, 16), rates=(1e-3, 2e-3), epochs=(1,), seeds=3)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`pre`, a pre-trained run, and `pairs.tsv`; not to be changed."""
    folder = tmp_path_factory.mktemp("desk")
    pretrained(folder / "pre")
    pairs_file(folder / "pairs.tsv", 60)
    return folder


@pytest.fixture(scope="module")
def base(desk: Path) -> PairRunConfig:
    return tuning(desk / "pre", desk / "pairs.tsv")


def cells(base: PairRunConfig, folder: Path, space: SearchSpace = SPACE) -> list[TuningCell]:
    return tuning_cells(base, space.settings(), [1], folder, train_pairs=54, warmup_share=0.1)


def log(cell: TuningCell, accuracy: float, nll: float = 0.5, last: str = "finished", f1: float | None = 0.5) -> None:
    """What a run leaves that ended so; an earlier validation was better."""
    scores: dict[str, Any] = {"accuracy": accuracy, "nll_nats": nll} | ({} if f1 is None else {"f1": f1})
    events = [
        {"event": "validation", "update": 3, "accuracy": 1.0, "nll_nats": 0.01, "f1": 1.0},
        {"event": "validation", "update": 7} | scores,
        {"event": last, "update": 7},
    ]
    write_events(cell.folder, events)


def test_the_defaults_are_the_paper_s_ranges() -> None:
    settings = list(SearchSpace().settings())
    assert len(settings) == len(set(settings)) == 2 * 5 * 3
    assert {s.batch_sequences for s in settings} == {16, 32}
    assert (min(s.peak_lr for s in settings), max(s.peak_lr for s in settings)) == (1e-5, 1e-4)
    assert (min(s.epochs for s in settings), max(s.epochs for s in settings)) == (3, 8)
    assert SearchSpace().seeds == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates": ()}, "rates: give one or more different values"),
        ({"batch_sizes": (16, 16)}, "batch sizes: give one or more different values"),
        ({"epochs": (0, 3)}, "epochs must be positive"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"warmup_share": 1.5}, r"warm-up share must lie in \[0, 1\]"),
    ],
)
def test_spaces_that_are_none(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SearchSpace(**changes)


def test_every_cell_is_the_start_s_fine_tuning_with_its_setting(base: PairRunConfig, tmp_path: Path) -> None:
    found = tuning_cells(
        base,
        [made._TuningSetting(8, 1e-4, 3), made._TuningSetting(20, 2e-5, 4)],
        [1, 2],
        tmp_path,
        train_pairs=54,
        warmup_share=0.1,
    )
    assert [cell.name for cell in found] == [
        "batch-8_lr-0.0001_epochs-3_seed-1",
        "batch-20_lr-2e-05_epochs-4_seed-1",
        "batch-8_lr-0.0001_epochs-3_seed-2",
        "batch-20_lr-2e-05_epochs-4_seed-2",
    ]
    last = found[-1].config
    assert (last.seed, last.data.batch_sequences, last.optimizer.peak_lr, last.train.duration) == (
        2,
        20,
        2e-5,
        "4 epochs",
    )
    # 54 pairs are 7 batches of 8 or 3 of 20; a tenth of 21 and of 12 updates, rounded down.
    assert [cell.config.schedule.warmup_updates for cell in found] == [2, 1, 2, 1]
    assert (last.optimizer.name, last.optimizer.betas, last.optimizer.weight_decay) == ("adamw", (0.9, 0.999), 0.01)
    assert (last.schedule.decay, last.train.clip_norm, last.train.threads) == ("linear", 1.0, 1)
    assert not list(tmp_path.iterdir())


def test_a_run_is_judged_by_its_last_validation_and_only_when_it_is_over(base: PairRunConfig, tmp_path: Path) -> None:
    (cell, *_) = cells(base, tmp_path)
    assert cell.outcome() is None
    log(cell, 0.7, 0.6)
    assert cell.outcome() == made._PairScores(accuracy=0.7, f1=0.5, nll_nats=0.6)
    log(cell, 0.7, 0.6, f1=None)
    assert cell.outcome() == made._PairScores(accuracy=0.7, f1=None, nll_nats=0.6)
    for last in ("non-finite", "update"):
        log(cell, 0.7, 0.6, last)
        assert cell.outcome() is None


def test_the_best_setting_is_the_most_accurate_then_of_lower_loss_then_the_earlier(
    base: PairRunConfig, tmp_path: Path
) -> None:
    found = cells(base, tmp_path)
    for cell in found:
        log(cell, 0.6, 0.5)
    assert best_setting(found) == found[0].setting
    log(found[2], 0.6, 0.4)
    assert best_setting(found) == found[2].setting
    log(found[1], 0.7, 0.9)
    assert best_setting(found) == found[1].setting
    log(found[1], 0.7, 0.9, "non-finite")
    assert best_setting(found) == found[2].setting
    for cell in found:
        log(cell, 0.9, 0.1, "non-finite")
    with pytest.raises(UserError, match="no run of the search stayed finite; lower --rates"):
        best_setting(found)


def test_an_interval_is_student_s() -> None:
    """Quantile of five degrees of freedom from Abramowitz and Stegun, table 26.10."""
    values = [0.70, 0.72, 0.69, 0.75, 0.71, 0.73]
    found = interval(values)
    assert found.mean == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert found.half_width == pytest.approx(2.571 * statistics.stdev(values) / math.sqrt(6), rel=2e-4)
    assert found.count == 6
    assert interval([0.5]).half_width is None
    assert (str(interval([0.5, 0.5])), str(interval([0.25]))) == ("0.5000 ± 0.0000", "0.2500")


def _seeds(base: PairRunConfig, folder: Path, accuracies: Sequence[float]) -> list[TuningCell]:
    seeds = range(1, len(accuracies) + 1)
    found = tuning_cells(base, [made._TuningSetting(8, 1e-3, 3)], seeds, folder, train_pairs=54, warmup_share=0.1)
    for cell, accuracy in zip(found, accuracies, strict=True):
        log(cell, accuracy)
    return found


def test_the_summary_is_over_all_seeds_and_says_what_the_choice_cannot_have_flattered(
    base: PairRunConfig, tmp_path: Path
) -> None:
    found = summary(_seeds(base, tmp_path, [0.9, 0.7, 0.8]), majority_share=0.55)
    assert found.accuracy == interval([0.9, 0.7, 0.8])
    assert found.accuracy_of_other_seeds == interval([0.7, 0.8])
    assert found.f1 == interval([0.5, 0.5, 0.5])
    said = lines(found, task="mrpc", positive="1", settings=4)
    assert said[0].startswith(
        "mrpc: accuracy 0.8000 ± 0.2484, F1 of '1' 0.5000 ± 0.0000 (batch 8, rate 0.001, 3 epochs; 3"
    )
    assert "chosen on the same held-out pairs, by the first seed; the other seeds alone: accuracy 0.7500 ±" in said[1]
    assert lines(found, task="mrpc", positive="1", settings=1) == [said[0], said[2]]  # nothing was chosen


@pytest.mark.parametrize(("majority", "above", "word"), [(0.55, True, "yes"), (0.56, False, "no"), (0.9, False, "no")])
def test_the_verdict_takes_the_interval_off_the_mean(
    base: PairRunConfig, tmp_path: Path, majority: float, above: bool, word: str
) -> None:
    """0.8 - 4.303 · 0.1 / √3 = 0.5516."""
    found = summary(_seeds(base, tmp_path, [0.9, 0.7, 0.8]), majority_share=majority)
    assert found.above_majority is above
    assert lines(found, task="t", positive=None, settings=4)[-1] == (
        f"majority class {majority:.4f}; above it by more than the interval: {word}"
    )
    assert found.to_json()["above_majority_by_more_than_the_interval"] is above


def test_one_seed_has_no_verdict_and_seeds_that_stopped_are_named(base: PairRunConfig, tmp_path: Path) -> None:
    found = _seeds(base, tmp_path, [0.9, 0.7, 0.8])
    one = summary(found[:1], majority_share=0.5)
    assert one.above_majority is None
    assert lines(one, task="t", positive="x", settings=4)[-1].endswith("one seed has no interval")
    assert one.accuracy_of_other_seeds is None
    log(found[1], 0.7, 0.5, "non-finite")
    two = summary(found, majority_share=0.5)
    assert two.accuracies == (0.9, 0.8)
    assert "not finite, and left out: seed 2" in lines(two, task="t", positive="x", settings=4)
    for cell in found:
        log(cell, 0.7, 0.5, "non-finite")
    with pytest.raises(UserError, match=r"no seed of batch 8, rate 0.001, 3 epochs stayed finite"):
        summary(found, majority_share=0.5)


def test_the_table_shows_every_setting(base: PairRunConfig, tmp_path: Path) -> None:
    found = cells(base, tmp_path)
    log(found[0], 0.6875, 0.5432, f1=0.81)
    log(found[1], 0.5, 0.7, f1=None)
    for cell in found[2:]:
        log(cell, 0.5, 0.7, "non-finite")
    rows = table(found)
    assert rows[1].split() == ["8", "0.001", "1", "0.6875", "0.8100", "0.5432"]
    assert rows[2].split() == ["8", "0.002", "1", "0.5000", "0.7000"]
    assert rows[3].split() == ["16", "0.001", "1", "not", "finite"]


class Pool:
    """Stands in for the pool: writes down what it was asked to train, and leaves what each run would."""

    def __init__(self, accuracies: dict[tuple[int, float, int], float], failing: int | None = None) -> None:
        self.accuracies, self.failing, self.asked = accuracies, failing, list[list[str]]()

    def __call__(self, cells: Sequence[TuningCell], *, at_once: int, watch: Any) -> list[CellState[TuningCell]]:
        self.asked.append([cell.name for cell in cells if not cell.outcome()])
        states = [CellState(cell) for cell in cells]
        for state in states:
            key = state.cell.setting.batch_sequences, state.cell.setting.peak_lr, state.cell.seed
            if state.cell.seed == self.failing:
                state.status, state.message = "failed", "killed"
                continue
            log(state.cell, self.accuracies.get(key, 0.5))
            step = state.cell.folder.checkpoints / "step-7"
            step.mkdir(parents=True, exist_ok=True)
            step.with_name(".unfinished-step-4-removed").mkdir(exist_ok=True)  # a removal that a kill stopped
            state.read_new_events()
            watch(states)
        return states


def test_the_search_runs_every_setting_once_and_the_best_with_every_seed(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool({(16, 1e-3, 1): 0.8, (16, 1e-3, 2): 0.7, (16, 1e-3, 3): 0.6})
    monkeypatch.setattr(searching, "run_cells", pool)
    monkeypatch.setattr(searching, "write_configs", lambda cells: None)
    task = PairTask(name="own", train_file=desk / "pairs.tsv")
    seen: list[int] = []
    found = finetune(desk / "pre", task, tmp_path, space=SPACE, which="2", watch=lambda s: seen.append(len(s)))
    assert pool.asked == [
        [f"batch-{b}_lr-{lr}_epochs-1_seed-1" for b in (8, 16) for lr in (0.001, 0.002)],
        [f"batch-16_lr-0.001_epochs-1_seed-{seed}" for seed in (2, 3)],
    ]
    assert seen == [4] * 4 + [3] * 3
    assert found.summary.accuracies == (0.8, 0.7, 0.6)
    assert found.summary.majority_share == 4 / 6  # held out: pairs 10, 20 … 60, of which every third differs
    kept = {cell.name: len(list(cell.folder.checkpoints.iterdir())) for cell in [*found.searched, *found.best]}
    assert {name for name, count in kept.items() if count} == {cell.name for cell in found.best}
    written = json.loads((tmp_path / "results.json").read_text())
    assert written == {"normscope": normscope.__version__, **json.loads(json.dumps(found.to_json()))}
    assert written["start"]["update"] == 2
    assert [row["accuracy"] for row in written["searched"]] == [0.5, 0.5, 0.8, 0.5]
    assert written["positive_label"] == "same"


def test_a_single_setting_is_not_chosen_but_run_with_all_seeds_at_once(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool({})
    monkeypatch.setattr(searching, "run_cells", pool)
    monkeypatch.setattr(searching, "write_configs", lambda cells: None)
    task = PairTask(name="own", train_file=desk / "pairs.tsv")
    space = SearchSpace(batch_sizes=(8,), rates=(1e-3,), epochs=(2,), seeds=2)
    finetune(desk / "pre", task, tmp_path, space=space)
    assert pool.asked == [["batch-8_lr-0.001_epochs-2_seed-1", "batch-8_lr-0.001_epochs-2_seed-2"]]


def test_a_run_that_fails_ends_the_search_without_results(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "run_cells", Pool({}, failing=2))
    monkeypatch.setattr(searching, "write_configs", lambda cells: None)
    task = PairTask(name="own", train_file=desk / "pairs.tsv")
    space = SearchSpace(batch_sizes=(8,), rates=(1e-3,), epochs=(2,), seeds=2)
    with pytest.raises(RunsFailed, match=r"seed-2: killed \(log: .*seed-2.txt\)") as failed:
        finetune(desk / "pre", task, tmp_path, space=space)
    assert len(str(failed.value).splitlines()) == 1
    assert not (tmp_path / "results.json").exists()


def test_real_runs_and_the_same_command_again(desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained in this process, which spares a dozen seconds of imports; the command's own test has processes."""

    def train(cells: Sequence[TuningCell], *, at_once: int, watch: Any) -> list[CellState[TuningCell]]:
        states = [CellState(cell) for cell in cells]
        for state in states:
            state.read_new_events()
            if not state.over:
                trained.append(state.cell.name)
                train_run(load(state.cell.config_file), state.cell.folder.path)
            state.read_new_events()
            watch(states)
        return states

    trained: list[str] = []
    monkeypatch.setattr(searching, "run_cells", train)
    task = PairTask(name="own", train_file=desk / "pairs.tsv")
    space = SearchSpace(batch_sizes=(16,), rates=(1e-3, 3e-3), epochs=(1,), seeds=2)
    settings = ['train.device="cpu"']
    first = finetune(desk / "pre", task, tmp_path / "out", space=space, settings=settings)
    assert len(trained) == 3
    before = (tmp_path / "out/results.json").read_bytes()
    again = finetune(desk / "pre", task, tmp_path / "out", space=space, settings=settings)
    assert len(trained) == 3
    assert again.summary == first.summary
    assert (tmp_path / "out/results.json").read_bytes() == before
    with pytest.raises(UserError, match=r"start.update: 4 there, 2 now"):
        finetune(desk / "pre", task, tmp_path / "out", space=space, settings=settings, which="2")


def test_tasks_are_named_or_files(tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv", "my.own.tsv"):
        (tmp_path / name).write_text("x")
    named = pair_task("rte", data=tmp_path)
    assert (named.train_file, named.dev_file) == (tmp_path / "train.tsv", tmp_path / "dev.tsv")
    assert (named.name, named.positive_label) == ("rte", "entailment")
    own = pair_task(str(tmp_path / "my.own.tsv"))
    assert (own.name, own.dev_file, own.positive_label) == ("my.own", None, "")
    assert pair_task(str(tmp_path / "my.own.tsv"), dev=tmp_path / "dev.tsv").dev_file == tmp_path / "dev.tsv"


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("mrpc", {}, "--task mrpc needs --data FOLDER"),
        ("mrpc", {"data": Path("nowhere")}, "nowhere/train.tsv: no such file"),
        ("mrpc", {"data": Path(), "dev": Path("x.tsv")}, "--dev is for a file of your own; --task mrpc takes dev.tsv"),
        ("cola", {}, "cola: no such file; a task is mrpc, rte or a tab-separated file"),
        ("own.tsv", {"data": Path()}, "--data is the folder of mrpc or rte; a file of your own takes --dev"),
    ],
)
def test_tasks_that_are_none(given: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        pair_task(given, **options)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optimizer.peak_lr=1", "--set optimizer.peak_lr: a search sets it by itself; give --rates instead"),
        ("seed=3", "give --seeds instead"),
        ("task=translation", "give --task instead"),
        ("model.depth=3", "unknown key 'model.depth'"),
    ],
)
def test_settings_that_a_search_does_not_take(desk: Path, setting: str, message: str) -> None:
    task = PairTask(name="own", train_file=desk / "pairs.tsv")
    with pytest.raises(UserError, match=message):
        base_config(open_start(desk / "pre", "last"), task, settings=[setting])


def test_sequences_are_no_longer_than_the_model_s_positions(desk: Path) -> None:
    start, task = open_start(desk / "pre", "last"), PairTask(name="own", train_file=desk / "pairs.tsv")
    assert base_config(start, task).data.sequence_length == 32
    assert base_config(start, task, sequence_length=20).data.sequence_length == 20
    with pytest.raises(UserError, match=r"sequence_length=33 is above model.positions=32"):
        base_config(start, task, sequence_length=33)


def test_folders_and_processes_that_are_none(desk: Path, tmp_path: Path) -> None:
    task = PairTask(name="own", train_file=desk / "pairs.tsv")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is a file; choose another folder with --out"):
        finetune(desk / "pre", task, tmp_path / "file", space=SPACE)
    with pytest.raises(UserError, match="--processes must be 0 or more, got -1"):
        finetune(desk / "pre", task, tmp_path / "out", space=SPACE, processes=-1)
    assert RunFolder(tmp_path / "out").is_free


def test_a_second_search_in_the_folder_is_refused_before_anything_runs(desk: Path, tmp_path: Path) -> None:
    task = pair_task(str(desk / "pairs.tsv"))
    with alone(tmp_path / "out", "search"), pytest.raises(UserError, match="is at work on the search in"):
        finetune(desk / "pre", task, tmp_path / "out", space=SPACE)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
