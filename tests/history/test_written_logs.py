"""Logs that other libraries wrote, two files each, say what was logged: `write_logs.py` has how
they were written.
"""

import math
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from history.write_logs import PEAK, UPDATES, WARMUP, loss, norm, rate
from normscope.errors import UserError
from normscope.history.record import History
from normscope.targets.logs import history_at

LOGS = Path(__file__).parent / "logs"


def database(name: str, folder: Path) -> Path:
    """A database made again from its SQL."""
    file = folder / name
    with sqlite3.connect(file) as made:
        made.executescript((LOGS / f"{name}.sql").read_text())
    made.close()
    return file


def agrees(found: History, *, ends_in_nan: bool) -> None:
    """Whether a history is the training that was logged."""
    updates = tuple(range(1, UPDATES + 1))
    assert found.loss.updates[:UPDATES] == updates
    assert found.loss.values[:UPDATES] == tuple(map(loss, updates))
    assert found.last_update == UPDATES + ends_in_nan
    if ends_in_nan:
        assert math.isnan(found.loss.values[-1])
    if found.rate:
        assert found.rate.values[:UPDATES] == pytest.approx([rate(at) for at in updates])
    if found.gradient_norm:
        assert found.gradient_norm.values[:UPDATES] == tuple(map(norm, updates))


@pytest.mark.parametrize(
    ("name", "ends_in_nan"),
    [
        ("pandas_index.csv", False),  # pandas writes NaN as an empty cell
        ("pandas_named.csv", False),
        ("lightning/metrics.csv", True),
        ("lightning_step/metrics.csv", True),
        ("lightning", True),
        ("run-first.wandb", False),
        ("run-second.wandb", True),
        ("nanogpt.log", True),
        ("nanogpt_pasted.txt", False),
        ("megatron.log", True),
        ("megatron_pasted.txt", True),
        ("torchtitan.log", True),
        ("torchtitan_pasted.txt", False),
    ],
)
def test_a_file_says_what_was_logged(name: str, ends_in_nan: bool) -> None:
    found = history_at(LOGS / name)
    agrees(found, ends_in_nan=ends_in_nan)
    assert found.read[0].startswith("loss as `")
    if not name.startswith(("nanogpt", "torchtitan")):
        assert len(found.rate.updates) >= UPDATES
    if not name.startswith("nanogpt"):
        assert len(found.gradient_norm.updates) >= UPDATES


@pytest.mark.parametrize("run", ["first", "second"])
@pytest.mark.parametrize(
    "store",
    [
        lambda folder: shutil.copytree(LOGS / "mlruns", folder / "mlruns"),
        lambda folder: database("mlflow.db", folder),
        lambda folder: database("letters.db", folder),
    ],
    ids=["mlflow's files", "mlflow's database", "trackio's database"],
)
def test_a_run_of_a_store_is_named_behind_a_sign(
    store: Callable[[Path], Path], run: str, tmp_path: Path
) -> None:
    path = store(tmp_path)
    found = history_at(Path(f"{path}#{run}"))
    agrees(found, ends_in_nan=run == "second")
    assert (found.recipe.peak_rate, found.recipe.warmup_updates) == (PEAK, WARMUP)
    with pytest.raises(UserError, match=rf"has 2 runs: .*{path.name}#.*it has (first|second), "):
        history_at(path)
    with pytest.raises(UserError, match="no single run 'third'"):
        history_at(Path(f"{path}#third"))


def test_a_folder_of_one_run_needs_no_name(tmp_path: Path) -> None:
    (first, second) = sorted((LOGS / "mlruns").glob("*/*/metrics"))
    for metrics in (first, second):
        agrees(
            history_at(metrics.parent), ends_in_nan="nan" in (metrics / "train/loss").read_text()
        )
    shutil.copytree(first.parents[1], tmp_path / "one", ignore=lambda *_: [second.parent.name])
    assert history_at(tmp_path / "one").last_update >= UPDATES


def test_a_database_is_left_as_it_was(tmp_path: Path) -> None:
    file = database("letters.db", tmp_path)
    before = file.read_bytes()
    history_at(Path(f"{file}#first"))
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_a_view_in_the_place_of_a_table_is_not_asked(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    with sqlite3.connect(file) as made:
        made.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE n(step) AS (SELECT 1 UNION ALL SELECT step + 1 "
            "FROM n) SELECT step, 'a' AS run_name, '{}' AS metrics, 1 AS id FROM n"
        )
    made.close()
    with pytest.raises(UserError, match="neither a database of mlflow's nor one of trackio's"):
        history_at(file)


@pytest.mark.parametrize("name", ["lightning/metrics.csv", "run-first.wandb"])
def test_the_schedule_that_was_meant_is_read_beside_the_log(name: str) -> None:
    recipe = history_at(LOGS / name).recipe
    assert (recipe.peak_rate, recipe.warmup_updates) == (PEAK, WARMUP)


@pytest.mark.parametrize("name", ["transformers.txt", "transformers_bar.txt"])
def test_the_trainers_lines_are_counted_by_its_bar_or_one_by_one(name: str) -> None:
    found = history_at(LOGS / name)
    assert found.loss.updates == tuple(range(1, 13))
    # The last line tells the mean of the whole training, which is no update's.
    assert (found.loss.values[0], found.loss.values[-1]) == (6.5, 4.495)
    assert max(found.rate.values) == 0.1
    counted = any("each line with a loss counts as one" in words for words in found.left_out)
    assert counted == (name == "transformers.txt")


def test_a_bar_says_how_many_updates_lie_between_lines(tmp_path: Path) -> None:
    lines = ["  0%|  | 0/40 [00:00<?]"]
    for at in (10, 20, 30, 40):
        lines += [f"{{'loss': '{5 - at / 20}'}}", f"  1%|  | {at}/40 [00:00<00:00]"]
        lines += ["  0%|  | 0/4 [00:00<?]", "{'eval_loss': '3.5', 'eval_runtime': '1.0'}"]
    (tmp_path / "job.out").write_text("\n".join(lines) + "\n")
    found = history_at(tmp_path / "job.out")
    assert found.loss.updates == (10, 20, 30, 40)
    assert found.validation_loss.updates == (10, 20, 30, 40)


def test_updates_that_each_epoch_counts_anew_go_on(tmp_path: Path) -> None:
    lines = [
        f"Epoch {epoch} | step {at}/3 | loss {4 - epoch - at / 10:.2f} | lr 1.0e-03"
        for epoch in (1, 2)
        for at in (1, 2, 3)
    ]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    found = history_at(tmp_path / "train.log")
    assert found.loss.updates == (1, 2, 3, 4, 5, 6)
    assert found.rate.values == (1e-3,) * 6


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step 12 | loss: 3.5 | lr 6.0e-04 | norm: 0.27 | dt: 30ms", (12, 3.5, 6e-4, 0.27)),
        ("iter 1,200: loss 3.5, time 10ms", (1200, 3.5, None, None)),
        ("[rank0] Update 7 train_loss=3.5 lr=1e-3", (7, 3.5, 1e-3, None)),
        ('{"global_step": 9, "loss": 3.5, "loss scale": 9.0}', (9, 3.5, None, None)),
        ("iteration 4/ 100 | lm loss: 3.5E+00 | params norm: 9.0 |", (4, 3.5, None, None)),
    ],
)
def test_what_stands_beside_a_loss_is_not_taken_for_it(
    line: str, expected: tuple[float, ...], tmp_path: Path
) -> None:
    (tmp_path / "train.out").write_text(f"starting\n{line}\n")
    found = history_at(tmp_path / "train.out")
    seen = (found.loss.updates[0], found.loss.values[0], found.rate.at(9**9))
    assert (*seen, found.gradient_norm.at(9**9)) == expected
    assert found.left_out == ("1 line without a loss, the first is line 1",)


def test_lines_without_a_loss_are_refused_with_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("all went well\nloss scale: 3.0\n")
    with pytest.raises(UserError, match=r"notes.txt:1: none of 2 lines has a loss.*`iter 10: loss"):
        history_at(tmp_path / "notes.txt")


def test_a_download_of_wandb_and_one_of_tensorboard_are_tables(tmp_path: Path) -> None:
    head = '"Step","brisk-1 - train/loss","brisk-1 - train/loss__MIN","brisk-1 - train/loss__MAX"'
    (tmp_path / "wandb_export.csv").write_text(
        f'{head}\n"1","4.0","4.0","4.0"\n"2","3.5","3","4"\n'
    )
    assert history_at(tmp_path / "wandb_export.csv").loss.values == (4.0, 3.5)
    (tmp_path / "run-.-tag-Loss_train.csv").write_text("Wall time,Step,Value\n1.7e9,5,3.5\n")
    assert history_at(tmp_path / "run-.-tag-Loss_train.csv").loss.updates == (5,)


def test_what_of_a_table_is_left_out_is_said(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,loss,note,time\n1,3.0,warm,1\n2,,ok,2\n,2.0,,3\n4,1.5,,4\n5,1.4,,5\n")
    assert history_at(file).left_out == (
        "2 cells of `note` that are no number, the first in line 2",
        "1 empty cell of `loss`, the first in line 3: pandas writes a loss that is no number so",
        "1 line without a `step`, the first is line 4",
        "`time`",
    )


def test_a_list_of_objects_is_read_as_lines_are(tmp_path: Path) -> None:
    (tmp_path / "records.json").write_text('[{"step": 3, "loss": 2.0}, {"step": 4, "loss": 1.0}]')
    assert history_at(tmp_path / "records.json").loss.updates == (3, 4)
