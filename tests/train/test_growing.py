"""A run that is made longer ends with the bits of one that was to be so long from its beginning."""

import math
import shutil
from pathlib import Path

import pytest

from normscope.errors import UserError
from normscope.runs import run
from normscope.tasks import translation as translating
from normscope.train import RunFolder
from tiny import SHORT, result, steps, tiny

SETTINGS = tuple(setting for setting in SHORT if "duration" not in setting)
SCHEDULES = {
    "inverse-sqrt": (
        'schedule.decay="inverse-sqrt"',
        "schedule.decay_from_updates=4",
        "schedule.warmup_updates=5",
    ),
    "coupled": ('schedule.decay="coupled-inverse-sqrt"', "schedule.warmup_updates=8"),
    "moving number": (
        'model.placement="pre-to-post"',
        "adaptive.over=9",
        "train.validate_every='0.7 epochs'",
    ),
}


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_longer_run_is_as_if_it_had_been_so_from_the_start(tmp_path: Path, name: str) -> None:
    """7 is no update at which a validation or a checkpoint is due."""
    settings = (*SETTINGS, *SCHEDULES[name])
    run.train_run(tiny(*settings, "train.duration=11"), tmp_path / "whole")
    run.train_run(tiny(*settings, "train.duration=7"), tmp_path / "grown")
    assert [event["event"] for event in RunFolder(tmp_path / "grown").events()][-2:] == [
        "validation",
        "finished",
    ]
    run.train_run(tiny(*settings, "train.duration=11"), tmp_path / "grown")
    assert result(tmp_path / "grown", 11) == result(tmp_path / "whole", 11)
    assert (tmp_path / "grown/config.toml").read_text() == (
        tmp_path / "whole/config.toml"
    ).read_text()


def test_a_best_checkpoint_that_the_shorter_end_had_taken_the_place_of_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validation at the end of the shorter run, which the longer run does not make, is the best
    of all.
    """
    losses = {5: 3.0, 10: 4.0, 12: 1.0, 15: 5.0, 20: 6.0}

    class Told(translating.TranslationObjective):
        def validate(self, model: object) -> dict[str, float]:
            nll = next(iter_losses)
            return {"loss_nats": 0.0, "nll_nats": nll, "nll_bits": nll}

    monkeypatch.setattr(translating, "TranslationObjective", Told)
    settings = (*SETTINGS, "train.keep_checkpoints=1")
    iter_losses = iter([losses[5], losses[10], losses[12]])
    run.train_run(tiny(*settings, "train.duration=12"), tmp_path)
    assert (steps(tmp_path), RunFolder(tmp_path).checkpoint("best").update) == ([5, 12], 12)
    iter_losses = iter([losses[15], losses[20]])
    run.train_run(tiny(*settings, "train.duration=20"), tmp_path)
    assert (steps(tmp_path), RunFolder(tmp_path).checkpoint("best").update) == ([5, 20], 5)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_a_decay_over_the_length_of_the_run_cannot_grow(copy: Path, decay: str) -> None:
    shutil.rmtree(copy)
    settings = (*SHORT, "train.duration=2", f'schedule.decay="{decay}"')
    run.train_run(tiny(*settings), copy)
    before = (copy / "config.toml").read_bytes()
    with pytest.raises(
        UserError, match=rf'duration: 2 there, 3 now.*with decay "{decay}".*inverse-sqrt'
    ):
        run.train_run(tiny(*settings, "train.duration=3"), copy)
    assert (copy / "config.toml").read_bytes() == before


def test_a_shorter_run_than_there_is_is_refused_unless_it_goes_back(
    copy: Path, short: Path
) -> None:
    with pytest.raises(
        UserError,
        match=(
            r"trained for 12 updates, and .* asks for 9; .* go back with --from-step 8 "
            r".from_step=8 in Python., "
        ),
    ):
        run.train_run(tiny(*SETTINGS, "train.duration=9"), copy)
    assert result(copy, 12) == result(short, 12)
    assert (copy / "config.toml").read_text() == (short / "config.toml").read_text()
    assert run.train_run(tiny(*SETTINGS, "train.duration=9"), copy, from_step=8).update == 9
    assert run.train_run(tiny(*SETTINGS, "train.duration=12"), copy).update == 12
    assert result(copy, 12) == result(short, 12)


def test_how_many_checkpoints_are_kept_may_change_on_the_way(copy: Path, short: Path) -> None:
    run.train_run(
        tiny(*SHORT, "train.keep_checkpoints=1", "train.checkpoint_every=3"), copy, from_step=5
    )
    assert steps(copy) == [10, 12]  # 10 is the best that a longer run would have
    assert result(copy, 12) == result(short, 12)
    assert RunFolder(copy).config_table()["train"]["keep_checkpoints"] == 1


def test_what_would_change_the_bits_stays_refused_beside_a_longer_duration(copy: Path) -> None:
    with pytest.raises(
        UserError,
        match=r"another configuration \(optimizer.peak_lr: 0.0005 there, 0.001 now; train.dur",
    ):
        run.train_run(tiny(*SETTINGS, "train.duration=20", "optimizer.peak_lr=1e-3"), copy)


@pytest.mark.parametrize(("warmup", "said"), [(13, True), (12, False)])
def test_a_warmup_longer_than_the_run_is_said(tmp_path: Path, warmup: int, said: bool) -> None:
    notes = list[str]()
    run.train_run(tiny(*SHORT, f"schedule.warmup_updates={warmup}"), tmp_path, say=notes.append)
    rates = [event["lr"] for event in RunFolder(tmp_path).events() if event["event"] == "update"]
    assert math.isclose(max(rates), 5e-4) is not said
    warning = (
        "warning: the warm-up (13 updates) is longer than the training (12 updates): the peak rate "
        "is never reached"
    )
    assert notes == ([warning] if said else [])
