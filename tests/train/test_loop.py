"""What an update is: one gradient over several batches, clipped as torch clips, at the schedule's
rate.
"""

import copy as copies
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from forked import start
from normscope.data.opening import toy_corpus
from normscope.data.parallel.batches import collate
from normscope.model import EncoderDecoder
from normscope.optim import OptimizerConfig, ScheduleConfig, factor
from normscope.runs import run
from normscope.runs.trained import load_run
from normscope.tasks.translation import TRANSLATION, TranslationConfig, TranslationObjective
from normscope.train import Hooks, RunFolder, TrainConfig, Trainer
from tiny import SHORT, finish, options, result, tiny

CPU = torch.device("cpu")


@pytest.fixture
def task() -> TranslationObjective:
    return TranslationObjective(
        toy_corpus(300), TranslationConfig(), max_tokens=512, seed=5, device=CPU
    )


@pytest.fixture
def model(task: TranslationObjective) -> EncoderDecoder:
    return TRANSLATION.build(tiny("model.dropout=0.0"), task.corpus.codec).double()


def one_update(
    model: nn.Module, task: Any, folder: Path, *, hooks: Hooks | None = None, **settings: Any
) -> dict[str, float]:
    """Train `model` for one update with SGD at a rate of 1; returns the line of metrics."""
    config = TrainConfig(duration=1, **settings)
    trainer = Trainer(
        model=model,
        objective=task,
        folder=RunFolder(folder),
        train=config,
        optimizer=OptimizerConfig(name="sgd", peak_lr=1.0),
        schedule=ScheduleConfig(),
        seed=5,
        device=CPU,
        precision="fp32",
        hooks=hooks,
    )
    with trainer.folder.lock():
        trainer.run()
    return next(event for event in trainer.folder.events() if event["event"] == "update")


def big_batch_gradients(
    model: nn.Module, task: TranslationObjective, numbers: range
) -> tuple[list[Tensor], float, int]:
    """Gradients and loss of the sentences of all those batches as one padded batch."""
    indices = np.concatenate(
        [task.batches[int(task.epochs.micro_batch(number)[1][0])] for number in numbers]
    )
    batch = collate(task.train, indices)
    model.train()
    loss, _ = task.loss_sums(model, batch)
    mean = loss / batch.target_tokens
    return (
        list(torch.autograd.grad(mean, list(model.parameters()))),
        float(mean.detach()),
        batch.target_tokens,
    )


def test_three_batches_of_an_update_are_one_big_batch_weighted_by_tokens(
    model: EncoderDecoder, task: TranslationObjective, tmp_path: Path
) -> None:
    tokens = [task.micro_batch(number).target_tokens for number in range(3)]
    assert len(set(tokens)) == 3  # else a plain mean over batches would pass, too
    gradients, loss, total = big_batch_gradients(model, task, range(3))
    before = copies.deepcopy(model)
    line = one_update(model, task, tmp_path, accumulation=3)
    for (name, old), new, gradient in zip(
        before.named_parameters(), model.parameters(), gradients, strict=True
    ):
        torch.testing.assert_close(
            old - new, gradient, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert line["loss_nats"] == pytest.approx(loss, rel=1e-12)
    assert line["target_tokens"] == total == sum(tokens)


@pytest.mark.parametrize("reached", [0, 1, 2])
def test_a_parameter_that_one_batch_of_an_update_reaches_is_trained_by_it(
    model: EncoderDecoder, tmp_path: Path, reached: int
) -> None:
    class Sometimes(TranslationObjective):
        """Adds 3 times another parameter to the summed loss of one batch."""

        def micro_batch(self, number: int) -> Any:
            batch = super().micro_batch(number)
            if number == reached:
                self.chosen = batch
            return batch

        def loss_sums(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            loss, nll = super().loss_sums(model, batch)
            return loss + 3 * model.extra if batch is self.chosen else loss, nll

    model.extra = nn.Parameter(torch.zeros((), dtype=torch.float64))
    task = Sometimes(toy_corpus(300), TranslationConfig(), max_tokens=512, seed=5, device=CPU)
    line = one_update(model, task, tmp_path, accumulation=3)
    assert float(model.extra.detach()) == pytest.approx(-3 / line["target_tokens"], rel=1e-12)


def test_hooks_stand_around_an_update_and_their_numbers_are_logged(
    model: EncoderDecoder, task: TranslationObjective, tmp_path: Path
) -> None:
    class Noting(Hooks):
        """Notes every call, with the first weight as it was then."""

        def __init__(self) -> None:
            self.calls: list[tuple[str, float]] = []

        def note(self, name: str) -> None:
            self.calls.append((name, next(model.parameters()).detach().flatten()[0].item()))

        def before_first_batch(self, forward: Any) -> None:
            assert len(forward()) == 2  # the sums of both losses
            self.note("first batch")

        def before_update(self, update: int) -> dict[str, float]:
            self.note(f"before {update}")
            return {"half": 0.5}

        def after_step(self, update: int) -> dict[str, float]:
            self.note("after")
            return {}

    hooks = Noting()
    line = one_update(model, task, tmp_path, hooks=hooks)
    before = hooks.calls[0][1]
    assert hooks.calls[:2] == [("first batch", before), ("before 1", before)]
    assert [name for name, _ in hooks.calls[2:]] == ["after"]
    assert hooks.calls[2][1] != before
    assert line["half"] == 0.5


@pytest.mark.parametrize("share", [0.1, 10.0])
def test_clipping_is_torchs(
    model: EncoderDecoder, task: TranslationObjective, tmp_path: Path, share: float
) -> None:
    reference = copies.deepcopy(model)
    gradients, _, _ = big_batch_gradients(reference, task, range(1))
    for parameter, gradient in zip(reference.parameters(), gradients, strict=True):
        parameter.grad = gradient
    norm = float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients])))
    torch.nn.utils.clip_grad_norm_(reference.parameters(), share * norm)
    torch.optim.SGD(reference.parameters(), lr=1.0).step()
    line = one_update(model, task, tmp_path, clip_norm=share * norm)
    for wanted, got in zip(reference.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    assert line["gradient_norm"] == pytest.approx(
        norm, rel=1e-10
    )  # logged as it was before clipping


def test_the_rates_are_those_of_the_schedule(tmp_path: Path) -> None:
    settings = (
        "schedule.decay='linear'",
        "schedule.warmup_updates=5",
        "schedule.floor=0.1",
        "optimizer.peak_lr=2e-3",
    )
    config = tiny(*SHORT, *settings)
    progress = run.train_run(config, tmp_path)
    rates = {e["update"]: e["lr"] for e in RunFolder(tmp_path).events() if e["event"] == "update"}
    assert rates == {u: 2e-3 * factor(config.schedule, u, horizon_updates=12) for u in range(1, 13)}
    assert progress.summed_lr == pytest.approx(math.fsum(rates.values()), rel=1e-12)


def test_the_logged_loss_is_that_of_the_weights_before_the_update(tmp_path: Path) -> None:
    """Dropout off, rate almost 0: the logged losses are those of the initial weights on each batch
    in turn.
    """
    config = tiny("train.duration=4", "model.dropout=0.0", "optimizer.peak_lr=1e-30", "seed=9")
    run.train_run(config, tmp_path)
    task = TranslationObjective(
        toy_corpus(300), config.translation, max_tokens=512, seed=9, device=CPU
    )
    model = TRANSLATION.build(config, task.corpus.codec)
    events = [e for e in RunFolder(tmp_path).events() if e["event"] == "update"]
    for number, event in enumerate(events):
        batch = task.micro_batch(number)
        loss, nll = task.loss_sums(model, batch)
        assert event["loss_nats"] == pytest.approx(
            float(loss.detach()) / batch.target_tokens, rel=1e-5
        )
        assert event["nll_nats"] == pytest.approx(float(nll) / batch.target_tokens, rel=1e-5)
    assert len({event["loss_nats"] for event in events}) == 4


def test_bfloat16_autocast_trains_on_a_cpu_and_keeps_float32_weights(
    tmp_path: Path, short: Path
) -> None:
    run.train_run(tiny(*SHORT, "train.precision='bf16'"), tmp_path)
    losses, wanted = (
        [e["loss_nats"] for e in RunFolder(folder).events() if e["event"] == "update"]
        for folder in (tmp_path, short)
    )
    assert losses != wanted
    assert losses == pytest.approx(wanted, rel=0.02)  # bfloat16 has 8 bits
    assert {p.dtype for p in load_run(tmp_path).model.parameters()} == {torch.float32}


def test_on_a_cpu_deterministic_changes_nothing_and_says_so(tmp_path: Path, short: Path) -> None:
    said: list[str] = []
    run.train_run(tiny(*SHORT, "train.deterministic=true"), tmp_path, say=said.append)
    assert result(tmp_path, 12) == result(short, 12)
    assert [line for line in said if line.startswith("note: train.deterministic is for CUDA")]


def test_the_same_seed_gives_the_same_bits_in_another_process_and_another_seed_gives_others(
    tmp_path: Path, short: Path
) -> None:
    folder = tmp_path / "other-process"
    process = start("train", "--run", str(folder), *options(*SHORT))
    run.train_run(tiny(*SHORT, "seed=2"), tmp_path / "other-seed")
    code, _, err = finish(process)
    assert code == 0, err
    assert result(folder, 12) == result(short, 12)
    assert result(tmp_path / "other-seed", 12)[0] != result(short, 12)[0]


def test_validation_does_not_change_what_is_trained(tmp_path: Path, short: Path) -> None:
    run.train_run(tiny(*SHORT, "train.validate_every=1", "translation.bleu_sentences=3"), tmp_path)
    assert result(tmp_path, 12)[0] == result(short, 12)[0]
    bleus = [
        event["bleu"] for event in RunFolder(tmp_path).events() if event["event"] == "validation"
    ]
    assert len(bleus) == 12
    assert all(0 <= bleu <= 100 for bleu in bleus)


def test_durations_in_epochs_count_updates_of_several_batches(tmp_path: Path) -> None:
    settings = (
        "train.duration='2 epochs'",
        "train.accumulation=3",
        "train.validate_every='1 epochs'",
    )
    progress = run.train_run(tiny(*settings), tmp_path)
    task = TranslationObjective(
        toy_corpus(300), TranslationConfig(), max_tokens=512, seed=1, device=CPU
    )
    assert progress.update == math.ceil(2 * task.micro_batches_per_epoch / 3)
    events = RunFolder(tmp_path).events()
    assert len([e for e in events if e["event"] == "validation"]) == 2
    assert [e for e in events if e["event"] == "update"][-1]["epoch"] >= 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"duration": 0}, "duration"),
        ({"duration": "3 weeks"}, "3 weeks"),
        ({"accumulation": 0}, "accumulation must be at least 1, got 0"),
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"clip_norm": math.nan}, "clip_norm must be positive"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**setting)


def test_listeners_see_every_event_with_timings_that_the_record_leaves_out(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    run.train_run(tiny(*SHORT), tmp_path, listeners=[seen.append])
    timings = {"elapsed_seconds", "target_tokens_per_second", "input_wait_share", "updates"}
    assert [{k: v for k, v in event.items() if k not in timings} for event in seen] == RunFolder(
        tmp_path
    ).events()
    assert all(timings <= event.keys() for event in seen)
    assert json.loads((tmp_path / "environment.json").read_text())["threads"] == 1
