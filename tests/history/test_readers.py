"""Every kind of log, written by what writes it, becomes the same history."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from normscope.errors import UserError
from normscope.history.names import history_of
from normscope.history.reading.readers import STEPS
from normscope.targets.logs import history_at

LOSSES = [4.0, 3.5, 3.25, 3.0]
RATES = [1e-4, 2e-4, 3e-4, 4e-4]
PLACE = "model.layers/block_02/feed_forward"


def trainer_state(folder: Path) -> Path:
    log: list[dict[str, Any]] = [
        {"step": at, "epoch": at / 2, "loss": loss, "learning_rate": rate, "grad_norm": 2.0}
        for at, (loss, rate) in enumerate(zip(LOSSES, RATES, strict=True), 1)
    ]
    log.insert(
        1, {"step": 1, f"normscope/{PLACE}/update_ratio": 0.5, "normscope/recipe/clip_norm": 1.0}
    )
    log += [{"step": 4, "eval_loss": 3.1}, {"step": 4, "train_loss": 9.0, "train_runtime": 1.0}]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 30}))
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    return folder / "trainer_state.json"


def event_file(folder: Path) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for at, (loss, rate) in enumerate(zip(LOSSES, RATES, strict=True), 1):
            writer.add_scalar("train/loss", loss, at)
            # One of both as newer writers keep a scalar.
            writer.add_scalar("train/learning_rate", rate, at, new_style=True)
            writer.add_scalar("train/grad_norm", 2.0, at)
        writer.add_scalar(f"train/normscope/{PLACE}/update_ratio", 0.5, 1)
        writer.add_scalar("eval/loss", 3.1, 4)
    (file,) = folder.glob("events*")
    return file


def wandb_lines(folder: Path) -> Path:
    rows = [
        {
            "_step": at + 10,
            "train/global_step": at,
            "train/loss": loss,
            "train/learning_rate": rate,
            "train/grad_norm": 2,
        }
        for at, (loss, rate) in enumerate(zip(LOSSES, RATES, strict=True), 1)
    ]
    rows[0][f"train/normscope/{PLACE}/update_ratio"] = 0.5
    rows += [{"_step": 15, "train/global_step": 4, "eval/loss": 3.1}, {"_step": 16, "gpu": 1.0}]
    folder.mkdir()
    file = folder / "wandb-history.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("write", [trainer_state, event_file, wandb_lines])
def test_every_format_says_the_same(write: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "log")
    found = history_at(file)
    assert found.loss.updates == (1, 2, 3, 4)
    assert found.loss.values == pytest.approx(LOSSES)
    assert found.rate.values == pytest.approx(RATES)
    assert found.gradient_norm.at(3) == 2.0
    assert (found.validation_loss.updates, found.validation_loss.values[0]) == (
        (4,),
        pytest.approx(3.1),
    )
    assert found.sublayers[PLACE]["update_ratio"].at(4) == 0.5
    # The folder around it is as good.
    assert history_at(file.parent).loss == found.loss


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("loss", ["loss", "train_loss", "train/loss"])
def test_lines_of_json_are_read_by_any_usual_name_of_their_step(
    step: str, loss: str, tmp_path: Path
) -> None:
    lines = [
        json.dumps({step: at, loss: value, "lr": rate, "epoch": 1})
        for at, (value, rate) in enumerate(zip(LOSSES, RATES, strict=True), 1)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    found = history_at(tmp_path / "log.jsonl")
    assert (found.loss.updates, found.loss.values) == ((1, 2, 3, 4), tuple(LOSSES))
    assert found.rate.values == tuple(RATES)


def test_a_metrics_file_that_others_wrote_is_read_as_lines(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "loss": 2.0}\n{"step": 6, "loss": 1.5}\n')
    assert history_at(tmp_path / "metrics.jsonl").loss.updates == (5, 6)
    # One of ours that was edited is damaged, and not another's.
    (tmp_path / "metrics.jsonl").write_text('{"event": "update", "update": 1, "loss_nats": 2.0}\n')
    with pytest.raises(UserError, match="this line is damaged"):
        history_at(tmp_path / "metrics.jsonl")


def test_wandbs_own_count_goes_before_what_anybody_may_call_a_step(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"_step": 7, "step": 1, "loss": 2.0}\n')
    assert history_at(tmp_path / "log.jsonl").loss.updates == (7,)


def test_what_the_trainer_says_beside_the_losses(tmp_path: Path) -> None:
    recipe = history_at(trainer_state(tmp_path / "log")).recipe
    assert (recipe.classes, recipe.clip_norm, recipe.divides) == (30, 1.0, None)


def test_the_newest_checkpoint_holds_the_whole_history(tmp_path: Path) -> None:
    for step in (2, 10):
        state = trainer_state(tmp_path / f"checkpoint-{step}")
        table = json.loads(state.read_text())
        table["log_history"].append({"step": step, "loss": 1.0})
        state.write_text(json.dumps(table))
    assert history_at(tmp_path).last_update == 10


def test_a_loss_that_is_no_number_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text('{"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": NaN}]}')
    assert math.isnan(history_at(file).loss.values[1])


def test_a_repeated_update_counts_as_it_was_last() -> None:
    found = history_of("log", [(1, {"loss": 3.0}), (2, {"loss": 9.0}), (2, {"loss": 2.0})])
    assert found.loss.values == (3.0, 2.0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("trainer_state.json", "{}", "has no `log_history`"),
        (
            "trainer_state.json",
            '{"log_history": [{"step": 1, "accuracy": 1.0}]}',
            "no training loss.* it has: accuracy",
        ),
        ("trainer_state.json", "{", "trainer_state.json"),
        (
            "wandb-history.jsonl",
            '{"_step": 1, "loss": 2}\n[1]\n',
            "jsonl:2: this line is no JSON object",
        ),
        (
            "log.jsonl",
            '{"epoch": 1, "loss": 2}\n',
            "no count of updates.* read: .*step, .*; it has: epoch, loss",
        ),
        ("log.jsonl", '{"step": 1, "accuracy": 2}\n', "no training loss.* it has: accuracy"),
        ("log.jsonl", "", "has no update"),
        ("wandb-summary.json", "{}", "not its history"),
        ("notes.txt", "", "notes.txt:1: none of 0 lines has a loss"),
        ("notes.txt", "a\0b\n", "no log that can be read"),
        ("log.db", "no database", "no database that can be read"),
        ("log.csv", "step,loss\n1,2.0\n2,2.0,3.0\n", r"log.csv:3: 3 cells, and .* 2 columns"),
        ("log.csv", "1,2.0\n2,1.9\n", r"log.csv:1: the first line has to name the columns"),
        ("log.csv", "step,loss,loss\n", "log.csv:1: the column 'loss' stands twice"),
        ("log.csv", "step,loss\n-3,2.0\n", "log.csv:2: -3.0 is no number of an update"),
        ("log.csv", "step,a - loss,b - loss\n", "columns of 2 runs: download one run at a time"),
        ("run-1.wandb", "", "is no datastore of W&B"),
    ],
)
def test_what_is_no_log_is_refused_in_a_line(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        history_at(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_log_names_what_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no log"):
        history_at(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        history_at(tmp_path / "none")
