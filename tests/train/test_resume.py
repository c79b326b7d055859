"""SIGINT, SIGTERM and SIGHUP, going on, going back, and what a finished run does when it is asked
again.
"""

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from normscope.errors import UserError
from normscope.limits.ours import MARK
from normscope.runs import config as resolving, run
from normscope.tasks import translation as translating
from normscope.train import RunFolder
from tiny import SHORT, flip, leftovers, resealed, result, steps, tiny


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_at_that_update_and_the_run_goes_on_exactly(
    unfinished: Callable[..., Path], short: Path, number: int
) -> None:
    folder = unfinished(6, number=number)  # 6 is no update at which a checkpoint is due
    assert steps(folder) == [4, 5, 6]
    run.train_run(tiny(*SHORT), folder)
    assert result(folder, 12) == result(short, 12)


def test_every_event_is_in_the_metrics_once_and_in_order(short: Path) -> None:
    events = RunFolder(short).events()
    assert [e["update"] for e in events if e["event"] == "update"] == list(range(1, 13))
    assert [e["update"] for e in events if e["event"] == "validation"] == [5, 10, 12]
    assert events[0]["event"] == "initialisation"
    assert events[-1]["event"] == "finished"
    assert events[-1]["summed_lr"] == pytest.approx(
        sum(e["lr"] for e in events if e["event"] == "update"), rel=1e-12
    )
    assert events[-1]["target_tokens"] == sum(
        e["target_tokens"] for e in events if e["event"] == "update"
    )
    text = (short / "metrics.jsonl").read_text()
    assert "seconds" not in text  # no clock in what must repeat to the bit


def test_a_finished_run_is_left_alone(copy: Path) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in copy.rglob("*")}

    before, notes = times(), list[str]()
    progress = run.train_run(tiny(*SHORT), copy, say=notes.append)
    assert progress.update == 12
    assert notes == [f"{copy} is finished; nothing to do"]
    assert times() == before


def test_a_kill_between_the_last_checkpoint_and_the_last_line_is_made_good(
    copy: Path, short: Path
) -> None:
    metrics = copy / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["event"] == "finished"
    metrics.write_bytes(b"".join(lines[:-1]))
    assert not RunFolder(copy).is_finished
    run.train_run(tiny(*SHORT), copy)
    assert result(copy, 12) == result(short, 12)


def test_a_kill_between_the_last_checkpoint_and_the_removal_of_the_oldest_is_made_good(
    copy: Path,
) -> None:
    metrics = copy / "metrics.jsonl"
    metrics.write_bytes(b"".join(metrics.read_bytes().splitlines(keepends=True)[:-1]))
    assert steps(copy) == [4, 5, 8, 10, 12]
    run.train_run(tiny(*SHORT, "train.keep_checkpoints=1"), copy)
    assert steps(copy) == [
        10,
        12,
    ]  # the best; 10 would be it in a longer run, which does not validate at 12


def test_from_step_goes_back_drops_what_came_later_and_ends_with_the_same_bits(
    copy: Path, short: Path
) -> None:
    wanted = result(short, 12)
    seen = []
    run.train_run(tiny(*SHORT), copy, from_step=5, listeners=[lambda e: seen.append(e["update"])])
    assert seen[0] == 6
    assert result(copy, 12) == wanted
    assert steps(copy) == steps(short)
    with pytest.raises(UserError, match=r"no checkpoint of update 7; it has 4, 5, 8, 10, 12"):
        run.train_run(tiny(*SHORT), copy, from_step=7)


def test_a_damaged_checkpoint_is_refused_and_the_way_round_it_ends_with_the_same_bits(
    unfinished: Callable[..., Path], short: Path
) -> None:
    folder = unfinished(9)
    file = folder / "checkpoints/step-9/optimizer.safetensors"
    flip(file, 8 * 1000 + 3)
    with pytest.raises(UserError, match=r"step-9/optimizer.safetensors is damaged.*--from-step 8 "):
        run.train_run(tiny(*SHORT), folder)
    run.train_run(tiny(*SHORT), folder, from_step=8)
    assert result(folder, 12) == result(short, 12)


def test_metrics_that_lost_lines_are_refused_instead_of_filled_with_zeros(
    unfinished: Callable[..., Path],
) -> None:
    folder = unfinished(6)
    metrics = folder / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"lines are missing.*--from-step"):
        run.train_run(tiny(*SHORT), folder)
    run.train_run(tiny(*SHORT), folder, from_step=4)  # an older checkpoint needs fewer lines
    assert RunFolder(folder).is_finished


def test_what_a_kill_left_before_the_run_began_is_cleared_away(tmp_path: Path, short: Path) -> None:
    folder = tmp_path / "run"
    for left in ("checkpoints", ".unfinished-vocabularies", "vocabularies"):
        (folder / left).mkdir(parents=True)
    (folder / ".lock").touch()
    (folder / ".unfinished-vocabularies/source.json").write_text("{")
    (folder / ".unfinished-vocabularies" / MARK).touch()
    (folder / ".unfinished-config.toml-0123abcd").write_text("[mod")
    run.train_run(tiny(*SHORT), folder)
    assert result(folder, 12) == result(short, 12)
    assert not leftovers(folder)


def test_a_file_among_vocabularies_that_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "vocabularies").mkdir()
    (tmp_path / "vocabularies/half").write_text("half")
    with pytest.raises(UserError, match="half was not written by NormScope, and stays"):
        run.train_run(tiny(*SHORT), tmp_path)
    assert (tmp_path / "vocabularies/half").read_text() == "half"


@pytest.mark.parametrize(
    "content", [["notes.txt"], ["checkpoints/step-100/model.pt"], ["vocabularies/de.txt", "a.py"]]
)
def test_a_folder_that_is_something_else_is_not_touched(tmp_path: Path, content: list[str]) -> None:
    for name in content:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="is not empty and is not a run"):
        run.train_run(tiny(*SHORT), tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_mistake_in_the_settings_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="more than the 4 of a batch"):
        run.train_run(tiny(*SHORT, "data.max_tokens=4"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_corpus_under_the_same_name_is_refused(unfinished: Callable[..., Path]) -> None:
    folder = unfinished(6)
    file = folder / "environment.json"
    resealed(file, data_fingerprint="0" * 64)
    with pytest.raises(UserError, match="its fingerprint was 0000"):
        run.train_run(tiny(*SHORT), folder)


def test_a_changed_machine_is_noted_and_automatic_settings_stay_as_they_were(
    unfinished: Callable[..., Path], short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unfinished(6)
    file = folder / "environment.json"
    environment = resealed(file, torch="1.0")
    monkeypatch.setattr(resolving, "allowed_threads", lambda: 64)
    notes: list[str] = []
    run.train_run(tiny(*SHORT, "train.threads='auto'"), folder, say=notes.append)
    assert len(notes) == 1
    assert f"(torch: 1.0 -> {environment['torch']})" in notes[0]
    assert result(folder, 12) == result(short, 12)


def test_another_configuration_is_refused_with_what_differs(copy: Path) -> None:
    with pytest.raises(UserError) as error:
        run.train_run(tiny(*SHORT, "optimizer.peak_lr=1e-3", "seed=2"), copy)
    assert "seed: 1 there, 2 now; optimizer.peak_lr: 0.0005 there, 0.001 now" in str(error.value)


def test_a_run_that_another_process_trains_is_refused(copy: Path) -> None:
    (copy / "metrics.jsonl").write_bytes(b"")  # no longer finished
    with (
        RunFolder(copy).lock(),
        pytest.raises(
            UserError, match=rf"being trained by another process \({os.getpid()} on .*, since 20"
        ),
    ):
        run.train_run(tiny(*SHORT), copy)


def test_the_configuration_in_the_folder_is_complete_and_without_auto(short: Path) -> None:
    from normscope.runs.config import load
    from normscope.settings.tables import to_toml

    kept = load(short / "config.toml")
    lines = (short / "config.toml").read_text().splitlines(keepends=True)
    assert to_toml(kept) == "".join(lines[:-1])
    assert (
        lines[-1] == "# SHA-256 of the lines above: "
        f"{hashlib.sha256(''.join(lines[:-1]).encode()).hexdigest()}\n"
    )
    assert kept.train.precision == "fp32"
    assert "auto" not in (kept.train.device, kept.train.threads)


def test_the_checkpoints_kept_are_the_last_and_the_best(tmp_path: Path) -> None:
    config = tiny(
        "train.duration=9",
        "train.validate_every=3",
        "train.checkpoint_every=1",
        "optimizer.peak_lr=1e-9",
    )
    worse = iter([1.0, 2.0, 3.0])

    class Worsening(translating.TranslationObjective):
        def validate(self, model: object) -> dict[str, float]:
            return {"loss_nats": 0.0, "nll_nats": (nll := next(worse)), "nll_bits": nll}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translating, "TranslationObjective", Worsening)
        run.train_run(config, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert steps(folder.path) == [3, 8, 9]
    assert [folder.checkpoint(which).update for which in ("best", "last", "8")] == [3, 9, 8]
    for which, message in (
        ("5", "it has 3, 8, 9"),
        ("²", "`last`, `best` or an update's number"),
        ("-1", "`last`"),
    ):
        with pytest.raises(UserError, match=message):
            folder.checkpoint(which)
    flip(folder.checkpoints / "step-9/model.safetensors", 99)
    assert folder.checkpoint("8").update == 8
    with pytest.raises(
        UserError, match=r"Intact, newest first: step-8, step-3. Add --checkpoint 8 "
    ):
        folder.checkpoint("best")


def test_a_folder_in_the_place_of_a_state_is_told(copy: Path) -> None:
    file = copy / "checkpoints/step-12/state.json"
    file.unlink()
    file.mkdir()
    assert RunFolder(copy).events()
    with pytest.raises(UserError, match=r"step-12/state\.json is missing"):
        run.train_run(tiny(*SHORT), copy)


def test_a_run_that_has_lost_its_checkpoints_begins_again_and_keeps_what_it_logged(
    unfinished: Callable[..., Path],
) -> None:
    folder = unfinished(6)
    lost, log = folder / "checkpoints", folder / "metrics.jsonl"
    for time in (1, 2):
        before = log.read_bytes()
        shutil.rmtree(lost)
        notes = list[str]()
        run.train_run(tiny(*SHORT), folder, say=notes.append)
        again = (
            f"note: {lost} holds no checkpoint of the updates in {log}; they are done again, and "
            "the file is kept"
        )
        assert notes == [f"{again} as metrics-{time}.jsonl"]
        assert (folder / f"metrics-{time}.jsonl").read_bytes() == before
        log.write_bytes(
            log.read_bytes().rpartition(b'{"event": "finished"')[0]
        )  # as a kill at the end leaves it


@pytest.mark.thorough
def test_a_finished_run_that_has_lost_its_checkpoints_is_not_told_to_be_trained_first(
    unfinished: Any,
) -> None:
    folder = unfinished(6)
    run.train_run(tiny(*SHORT), folder)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(
        UserError,
        match=r"is finished and has lost its checkpoints .*: put them back, or move its metrics",
    ):
        run.train_run(tiny(*SHORT), folder)
    (folder / "metrics.jsonl").unlink()
    assert run.train_run(tiny(*SHORT), folder).update == 12
